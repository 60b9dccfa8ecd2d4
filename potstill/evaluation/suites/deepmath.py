"""DeepMath, held out. The hub has one split, so every 200th question by its hash is: about 500 of 103 thousand.

Whoever trains on the hub's rows leaves these out; `is_held_out` tells which. A local file is taken whole.
"""

from __future__ import annotations

from potstill.contracts.problem import Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import Row, Suite, maths_problem
from potstill.seeds import derived_seed

ONE_IN = 200


def is_held_out(row: Row) -> bool:
    return derived_seed("deepmath", str(row["question"]).strip()) % ONE_IN == 0


def _read(row: Row) -> Problem:
    return maths_problem(row["question"], row["final_answer"])


SUITES = (
    Suite(
        "deepmath",
        "DeepMath held-out",
        HubSource("zwhe99/DeepMath-103K"),
        ("question", "final_answer"),
        _read,
        selects=is_held_out,
    ),
)
