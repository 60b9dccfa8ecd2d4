"""Write the golden renders: `make golden`. Read the difference before committing it."""

from __future__ import annotations

from pathlib import Path

from tests.ship.chart import CASES, golden

FOLDER = Path(__file__).parent / "golden"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in CASES:
        (FOLDER / f"{name}.yaml").write_text(golden(name))


if __name__ == "__main__":
    main()
