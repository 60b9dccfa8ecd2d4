#!/usr/bin/env bash
# The CPU images on the base of local_bases.sh: deploy/smoke/local_images.sh [service…]. Packages come from where this machine's pip
# takes them, with the certificates that it trusts.
set -euo pipefail
cd "$(dirname "$0")/../.."
flags=(--isolation chroot --network host --build-arg TORCH_INDEX=)
for file in /etc/ssl/certs /etc/pip.conf; do
  [[ ! -e $file ]] || flags+=(-v "$file:$file:ro")
done
PREFIX=localhost/potstill PYTHON_BASE=localhost/smoke-python ALLOW_UNPINNED=1 BUILDER=buildah BUILD_FLAGS="${flags[*]}" \
  deploy/docker/build.sh cpu "$@"
