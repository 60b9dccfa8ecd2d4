#!/usr/bin/env bash
# The learner's parts on one GPU in at most 8 minutes: needs PyTorch, transformers and this tree, and downloads nothing.
# Writes docs/benchmarks.json and docs/benchmarks.md. `benchmarks/gpu.sh --small` tries it on a CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
PY=${PY:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv; fi
exec env HF_HUB_OFFLINE=1 PYTHONPATH="$PWD" timeout 480 "$PY" -m benchmarks.gpu "$@"
