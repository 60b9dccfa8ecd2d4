"""Who may import what. Read from the source, except what `potstill` loads, which is tried."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir() if (path / "__init__.py").exists())
HEAVY = ("torch", "vllm", "transformers")
UNSAFE = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}

LOAD_ALL = f"""
import importlib, pkgutil, sys
import potstill
names = [module.name for module in pkgutil.walk_packages(potstill.__path__, "potstill.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names), *[heavy for heavy in {HEAVY!r} if heavy in sys.modules])
"""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported_by(path: Path) -> Iterator[str]:
    """Full names of what a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, path)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _base(node: ast.ImportFrom, path: Path) -> str:
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).parts[: -node.level]
    return ".".join((*package, *filter(None, [node.module])))


def modules_named_in(path: Path) -> Iterator[str]:
    """Strings that name a service's module: what may be imported through importlib."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("services."):
            yield node.value


def is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_potstill_imports_without_torch_vllm_and_transformers() -> None:
    ended = subprocess.run([sys.executable, "-c", LOAD_ALL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    count, *loaded = ended.stdout.split()
    assert int(count) > 20
    assert loaded == []


def test_nothing_of_ours_can_unpickle() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources("potstill", "services", "learner")
        for name in imported_by(path)
        if any(is_inside(name, unsafe) for unsafe in UNSAFE)
    ]
    assert found == []


def test_every_service_is_looked_at() -> None:
    assert {"gateway", "rollout", "student", "teacher", "verifier"} <= set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_never_imports_another(service: str) -> None:
    others = {f"services.{name}" for name in SERVICES if name != service} | {"learner"}
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(f"services/{service}")
        for name in (*imported_by(path), *modules_named_in(path))
        if any(is_inside(name, other) for other in others)
    ]
    assert found == []


@pytest.mark.parametrize(("folder", "forbidden"), [("potstill", ("services", "learner")), ("learner", ("services",))])
def test_the_library_and_the_learner_import_no_service(folder: str, forbidden: tuple[str, ...]) -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(folder)
        for name in imported_by(path)
        if any(is_inside(name, package) for package in forbidden)
    ]
    assert found == []
