"""Run what is missing and write the page."""

from __future__ import annotations

import argparse
from pathlib import Path

import benchmarks.objectives
from benchmarks.objectives.page import page, plot
from benchmarks.objectives.settings import SETTINGS
from benchmarks.objectives.study import outcomes

RESULTS = Path("docs/results")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=benchmarks.objectives.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="at least two")
    parser.add_argument("--settings", nargs="+", choices=[setting.name for setting in SETTINGS])
    given = parser.parse_args()
    settings = [setting for setting in SETTINGS if given.settings is None or setting.name in given.settings]
    found = {}
    for setting in settings:
        setting.build()
        found[setting.name] = outcomes(setting, given.seeds)
    (RESULTS / "objectives.md").write_text(page(settings, found, given.seeds))
    plot(settings, found, RESULTS / "objectives.png")


if __name__ == "__main__":
    main()
