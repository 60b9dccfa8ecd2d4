"""One logger for every process: structured lines on standard error."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(level: str, form: str) -> None:
    """Set up structlog; `form` is `json` or `console`."""
    renderer: structlog.typing.Processor
    renderer = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the stream of now: it may have been replaced
    )


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry `component=name`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(component=name)
    return logger
