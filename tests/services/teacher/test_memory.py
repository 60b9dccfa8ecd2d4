"""Reading free memory, and keeping the estimate of a request above what it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.teacher.memory import available_bytes

GIB = 2**30
MEASURE = """
import sys
import numpy as np
from potstill.contracts.scoring import ScoreRequest
from services.teacher.groups import group_by_prompt
from services.teacher.head import Wanted
from services.teacher.memory import return_large_allocations
from services.teacher.settings import TeacherSettings
from services.teacher.torch_cost import ModelShape, estimate_request
from services.teacher.torch_model import BATCH_TOKENS, TorchModel
from tests.services.teacher import reference

def resident(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))

return_large_allocations()
model = TorchModel(TeacherSettings(auth="off", teacher_model=sys.argv[1], teacher_dtype="float32"))
model.check_arithmetic()
prompt, response, rows = map(int, sys.argv[2:])
request = ScoreRequest(reference.group(1, prompt, [response] * rows), top_k=4, entropy=True)
open("/proc/self/clear_refs", "w").write("5")
before = resident("VmRSS")
for group in group_by_prompt(request):
    model.score_group(group, Wanted(0.7, 4, True))
shape = ModelShape.of(model.config, model.vocab_size, model.dtype.itemsize)
print(resident("VmHWM") - before, estimate_request(request, shape, BATCH_TOKENS))
"""


def _root(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _meminfo(available: int) -> dict[str, str]:
    return {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {available // 1024} kB\n"}


def test_without_a_cgroup_limit_the_machine_decides(tmp_path: Path) -> None:
    cgroup = {"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "5\n"}
    assert available_bytes(_root(tmp_path, _meminfo(8 * GIB) | cgroup)) == 8 * GIB


def test_a_cgroup_limit_below_the_machines_memory_decides(tmp_path: Path) -> None:
    cgroup = {
        "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
    }
    assert available_bytes(_root(tmp_path, _meminfo(8 * GIB) | cgroup)) == 3 * GIB


def test_the_old_cgroups_are_read_too(tmp_path: Path) -> None:
    cgroup = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
    }
    assert available_bytes(_root(tmp_path, _meminfo(8 * GIB) | cgroup)) == GIB


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(300, 200, 64), (8, 300, 128), (500, 1, 4)])
def test_a_request_takes_no_more_than_its_estimate(wide_model: Path, shape: tuple[int, int, int]) -> None:
    command = [sys.executable, "-c", MEASURE, str(wide_model), *map(str, shape)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    measured, estimate = map(int, subprocess.check_output(command, env=environment, text=True).split())
    assert measured < estimate


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wide enough that its numbers stand out against the interpreter's."""
    from tests.tiny_model import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("wide") / "model", hidden=512, layers=8)
