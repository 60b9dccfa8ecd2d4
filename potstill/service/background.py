"""Work that goes on beside the requests. It never ends unnoticed: the process goes with it, to be started again."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from potstill.service.logs import get_logger

T = TypeVar("T")


def in_background(work: Coroutine[Any, Any, T], name: str, component: str) -> asyncio.Task[T]:
    """A task. When it fails, this is logged and the process is asked to end, as by SIGTERM."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(lambda done: _look_at(done, component))
    return task


def _look_at(task: asyncio.Task[Any], component: str) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    get_logger(component).critical("the process ends: work of its own has failed", work=task.get_name(), exc_info=error)
    if threading.current_thread() is threading.main_thread():  # an app in another thread is not the whole process
        signal.raise_signal(signal.SIGTERM)
