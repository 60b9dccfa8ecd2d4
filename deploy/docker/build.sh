#!/usr/bin/env bash
# Build the images: deploy/docker/build.sh cpu|cuda [service…]. Settings are the variables below.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { echo "potstill images: $1" >&2; exit 1; }

bases() { sed -n "s/^$1=//p" deploy/docker/bases.env; }
PREFIX=${PREFIX:-potstill}                       # registry and folder: registry.example.com/potstill
TAG=${TAG:-$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)}
PYTHON_BASE=${PYTHON_BASE:-$(bases PYTHON_BASE)}
VLLM_BASE=${VLLM_BASE:-$(bases VLLM_BASE)}
BUILDER=${BUILDER:-}                             # docker, podman or buildah; empty takes the first that works
BUILD_FLAGS=${BUILD_FLAGS:-}                     # more arguments for it
ALLOW_UNPINNED=${ALLOW_UNPINNED:-}               # 1: a base without a digest will do (a local one has none)

variant=${1:-cpu}
shift || true
case $variant in
  cpu) base=$PYTHON_BASE all=(gateway verifier rollout student teacher learner) ;;
  cuda) base=$VLLM_BASE all=(student teacher learner) ;;
  *) fail "there is no variant $variant: cpu or cuda" ;;
esac
[[ $# -gt 0 ]] && services=("$@") || services=("${all[@]}")
[[ $base == *@sha256:* || -n $ALLOW_UNPINNED ]] ||
  fail "$base has no digest: deploy/docker/bases.env says how to pin it (ALLOW_UNPINNED=1 builds without)"

works() { case $1 in docker) docker info >/dev/null 2>&1 ;; *) command -v "$1" >/dev/null ;; esac }
if [[ -z $BUILDER ]]; then
  for candidate in docker podman buildah; do works $candidate && BUILDER=$candidate && break; done
fi
[[ -n $BUILDER ]] || fail "there is no docker, podman or buildah here that works: install one"
case $BUILDER in
  docker) build=(docker build) ;;
  podman) build=(podman build --format docker) ;;    # OCI's format has no health check
  buildah) build=(buildah build --format docker) ;;
  *) fail "BUILDER=$BUILDER: docker, podman or buildah" ;;
esac

for service in "${services[@]}"; do
  [[ " ${all[*]} " == *" $service "* ]] || fail "there is no $variant image of $service: ${all[*]}"
  tags=(-t "$PREFIX/$service:$TAG-$variant")
  case $service in gateway | verifier | rollout) tags=(-t "$PREFIX/$service:$TAG") ;; esac
  echo "images: $service ($variant) with $BUILDER"
  # shellcheck disable=SC2086
  "${build[@]}" $BUILD_FLAGS -f "deploy/docker/$variant.Dockerfile" "${tags[@]}" \
    --build-arg "BASE=$base" --build-arg "SERVICE=$service" .
done
