"""The registry of suites: a new family is a file in this folder and a line here."""

from __future__ import annotations

from potstill.evaluation.suites import (
    aime,
    amc,
    deepmath,
    evalplus,
    hmmt,
    livecodebench,
    math500,
    minerva,
    olympiadbench,
)
from potstill.evaluation.suites.suite import Suite

FAMILIES = (aime, hmmt, amc, math500, minerva, olympiadbench, deepmath, evalplus, livecodebench)
SUITES: dict[str, Suite] = {suite.name: suite for family in FAMILIES for suite in family.SUITES}
