#!/usr/bin/env bash
# Bases for a machine that reaches a Debian mirror and no image registry: the names that `compose.sh` uses with LOCAL=1.
# deploy/smoke/local_bases.sh [python valkey prometheus]; python is the base of the others.
# Needs root, debootstrap, podman and buildah. localhost/smoke-python, -valkey and -prometheus are made from Debian 12.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATHS=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

has() { podman image exists "localhost/smoke-$1"; }

if ! has python; then
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/root" >"$work/log" ||
    { tail "$work/log"; exit 1; }
  tar -C "$work/root" --exclude='./var/cache/apt/archives/*.deb' -c . |
    podman import --change "ENV $PATHS" - localhost/smoke-python
fi

# $1 name, $2 packages, $3 commands
derive() {
  has "$1" && return
  local container
  container=$(buildah from localhost/smoke-python)
  buildah run --isolation chroot --network host "$container" -- sh -ec \
    "apt-get update -qq; apt-get install -y -qq --no-install-recommends $2 >/dev/null; $3; rm -rf /var/lib/apt/lists/*"
  # shellcheck disable=SC2086
  buildah config ${4:-} "$container"
  buildah commit --rm "$container" "localhost/smoke-$1"
}

wanted=" ${*:-python valkey prometheus} "

[[ $wanted != *" valkey "* ]] || derive valkey "redis-server redis-tools" \
  "ln -s /usr/bin/redis-server /usr/local/bin/valkey-server; ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli;
   install -d -o 999 -g 1000 /data"
[[ $wanted != *" prometheus "* ]] || derive prometheus prometheus "install -d -o 65534 -g 65534 /prometheus" \
  '--user 65534:65534 --entrypoint ["/usr/bin/prometheus"]'
