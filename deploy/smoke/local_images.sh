#!/usr/bin/env bash
# The CPU images on the base of local_bases.sh: deploy/smoke/local_images.sh [service…]. Packages come from where this machine's pip
# takes them, with the certificates that it trusts.
set -euo pipefail
cd "$(dirname "$0")/../.."
flags=(--isolation chroot --network host --build-arg TORCH_INDEX=)
[[ ! -e /etc/ssl/certs ]] || flags+=(-v /etc/ssl/certs:/etc/ssl/certs:ro)
wheels=${PIP_FIND_LINKS:-}
pip_conf=$(mktemp)
trap 'rm -f "$pip_conf"' EXIT
{ cat /etc/pip.conf 2>/dev/null || echo '[global]'; [[ ! -d $wheels ]] || echo "find-links = $wheels"; } >"$pip_conf"
chmod a+r "$pip_conf"
flags+=(-v "$pip_conf:/etc/pip.conf:ro")
[[ ! -d $wheels ]] || flags+=(-v "$wheels:$wheels:ro")
PREFIX=localhost/potstill PYTHON_BASE=localhost/smoke-python ALLOW_UNPINNED=1 BUILDER=buildah BUILD_FLAGS="${flags[*]}" \
  deploy/docker/build.sh cpu "$@"
