"""Write docs/metrics.md from the metrics that the code defines: `python docs/metrics_table.py`."""

from __future__ import annotations

import importlib
from pathlib import Path

from prometheus_client import REGISTRY

MODULES = {
    "every HTTP process": "potstill.service.metrics",
    "gateway": "services.gateway.metrics",
    "rollout": "services.rollout.metrics",
    "student": "services.student.metrics",
    "teacher": "services.teacher.metrics",
    "verifier": "services.verifier.metrics",
    "learner": "learner.metrics",
}
HEAD = """# Metrics

Every process serves `GET /metrics` without a token. All names start with `potstill_`; units are seconds, bytes, tokens
and shares between 0 and 1. Written by `python docs/metrics_table.py`.
"""


def table() -> str:
    """The page."""
    seen = {metric.name for metric in REGISTRY.collect()}
    parts = [HEAD]
    for process, module in MODULES.items():
        importlib.import_module(module)
        new = sorted((m for m in REGISTRY.collect() if m.name not in seen), key=lambda m: m.name)
        seen |= {metric.name for metric in new}
        rows = [f"| `{m.name}{'_total' if m.type == 'counter' else ''}` | {m.type} | {m.documentation} |" for m in new]
        parts += [f"## {process}\n", "| name | type | what |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(table())
