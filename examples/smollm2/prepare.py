"""Everything that the jobs in this folder need: weights and data. Safe to run again."""

from __future__ import annotations

import sys
import time

from examples.folders import is_complete
from examples.smollm2 import tasks, weights


def main() -> None:
    begun = time.monotonic()
    if not is_complete(weights.FOLDER, weights.FILES):
        print("fetching and expanding SmolLM2-135M-Instruct", flush=True)
    try:
        folder = weights.prepare_weights()
    except weights.WeightsError as error:
        sys.exit(f"potstill: {error}")
    print(f"model: {folder}")
    for task in tasks.TASKS.values():
        print(f"data:  {tasks.write_task(task)}")
    print(f"ready after {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
