#!/usr/bin/env bash
# Bring docker-compose.yml up, run a job by curl, look at its metrics, take everything down again. Prints what it does.
#   deploy/smoke/compose.sh            with docker compose, and images made by `make images`
#   LOCAL=1 deploy/smoke/compose.sh    with podman-compose and the bases of local_bases.sh; without Grafana, which has none
#   SHORT=1 LOCAL=1 …                  queue, verifier and gateway alone: no job, a verdict in its place (what CI runs)
set -euo pipefail
cd "$(dirname "$0")/../.."

LOCAL=${LOCAL:-} SHORT=${SHORT:-}
export GATEWAY_PORT=${GATEWAY_PORT:-18080} PROMETHEUS_PORT=${PROMETHEUS_PORT:-19090} GRAFANA_PORT=${GRAFANA_PORT:-13000}
export COMPOSE_PROFILES=cpu COMPOSE_PROJECT_NAME=potstill-smoke
POTSTILL_TOKEN=$(openssl rand -hex 32) VALKEY_PASSWORD=$(openssl rand -hex 32) GRAFANA_PASSWORD=$(openssl rand -hex 16)
export POTSTILL_TOKEN VALKEY_PASSWORD GRAFANA_PASSWORD
if [[ -n $LOCAL ]]; then
  engine=podman
  export CONTAINERS_CONF=$PWD/deploy/smoke/containers.conf
  compose=("${PODMAN_COMPOSE:-podman-compose}" -p "$COMPOSE_PROJECT_NAME" --profile cpu)
  export IMAGES=localhost/potstill VALKEY_IMAGE=localhost/smoke-valkey PROMETHEUS_IMAGE=localhost/smoke-prometheus
  services=(valkey prepare verifier student-cpu teacher-cpu gateway rollout learner-cpu prometheus)
else
  engine=docker
  compose=(docker compose)
  services=()
fi
[[ -z $SHORT ]] || services=(--no-deps valkey verifier gateway)
url=http://127.0.0.1:$GATEWAY_PORT
metrics=http://127.0.0.1:$PROMETHEUS_PORT
begun=$SECONDS

say() { printf '\n[%4d s] %s\n' $((SECONDS - begun)) "$*"; }
api() { curl -sS --fail-with-body -H "Authorization: Bearer $POTSTILL_TOKEN" -H "Content-Type: application/json" "$@"; }
field() { python3 -c 'import json,sys; print(eval("json.load(sys.stdin)" + sys.argv[1]))' "$1"; }
query() { curl -sS --get "$metrics/api/v1/query" --data-urlencode "query=$1"; }
containers() { "$engine" ps -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME"; }
container() { "$engine" ps -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter "label=com.docker.compose.service=$1"; }
down() { "${compose[@]}" down -v -t 30 >/dev/null 2>&1 || true; }
trap down EXIT

run_job() {
  say "waiting until the job could run"
  for attempt in $(seq 300); do
    api -o /tmp/potstill-smoke-answer "$url/v1/jobs:validate" -d @deploy/smoke/pair.json >/dev/null 2>&1 && break
    [[ $attempt -lt 300 ]] || { cat /tmp/potstill-smoke-answer; exit 1; }
    sleep 2
  done
  cat /tmp/potstill-smoke-answer

  say "submitting"
  api -i "$url/v1/jobs" -d @deploy/smoke/pair.json | tee /tmp/potstill-smoke-answer | grep -iE '^(HTTP|location)'
  job=$(tr -d '\r' </tmp/potstill-smoke-answer | sed -n 's/^location: //Ip')

  say "running"
  for _ in $(seq 600); do
    status=$(api "$url$job" | field '["status"]')
    [[ $status == succeeded || $status == failed || $status == cancelled ]] && break
    sleep 1
  done
  api "$url$job" | python3 -m json.tool | sed -n '/"progress"/,$p'
  [[ $status == succeeded ]]
  api "$url$job/checkpoints" | python3 -m json.tool | grep '"path"'
}

look_at_metrics() {
  say "metrics in Prometheus"
  sleep 12
  for expression in 'count by (service) (up == 1)' 'potstill_learner_steps_total' 'potstill_learner_step_heldout_accuracy' \
    'sum by (outcome) (potstill_rollout_tickets_total)' 'sum by (verdict) (potstill_verifier_verdicts_total)'; do
    echo "$expression"
    query "$expression" | python3 -c '
import json, sys
for one in json.load(sys.stdin)["data"]["result"]:
    labels = {k: v for k, v in one["metric"].items() if k not in ("__name__", "instance", "job")}
    print("   ", labels, one["value"][1])'
  done
  [[ $(query 'count(up{job="potstill"} == 1)' | field '["data"]["result"][0]["value"][1]') == 6 ]]
}

ask_for_a_verdict() {
  say "a job is refused for what is not there, once the gateway reaches queue and verifier"
  for attempt in $(seq 120); do
    api -o /tmp/potstill-smoke-answer "$url/v1/jobs" -d @deploy/smoke/pair.json 2>/dev/null || true
    missing=$(field '["errors"]' </tmp/potstill-smoke-answer 2>/dev/null | grep -o "'field': '[^']*'" | cut -d"'" -f4 | tr '\n' ' ') || true
    [[ $missing != "data.train data.heldout student teachers.sums " ]] || break
    [[ $attempt -lt 120 ]] || { cat /tmp/potstill-smoke-answer; exit 1; }
    sleep 1
  done
  python3 -m json.tool /tmp/potstill-smoke-answer | cut -c 1-160

  say "verdicts, asked for from the gateway's container"
  "$engine" exec -i "$(container gateway)" python - <deploy/smoke/verdicts.py
}

say "without secrets it refuses"
(unset POTSTILL_TOKEN; "${compose[@]}" --env-file /dev/null config 2>&1 || true) | tail -n 1

say "up"
"${compose[@]}" up -d "${services[@]}" >/tmp/potstill-smoke-up.log 2>&1 || { tail -n 30 /tmp/potstill-smoke-up.log; exit 1; }

if [[ -n $SHORT ]]; then
  ask_for_a_verdict
else
  run_job
  look_at_metrics
fi

say "containers"
for container in $(containers); do
  "$engine" inspect "$container" --format \
    '{{.Name}} user={{.Config.User}} read-only={{.HostConfig.ReadonlyRootfs}} dropped={{.HostConfig.CapDrop}}' | tr -d /
done
if [[ $engine == podman ]]; then # no systemd runs the health checks here
  for container in $(containers); do
    "$engine" healthcheck run "$container" >/dev/null 2>&1 && state=healthy || state="no health check, or not healthy"
    echo "$("$engine" inspect "$container" --format '{{.Name}}'): $state"
  done
fi
"$engine" stats --no-stream --format '{{.Name}} {{.MemUsage}}' 2>/dev/null || true

say "the verifier reaches neither the outside nor the queue"
verifier=$(container verifier)
for target in 1.1.1.1:443 valkey:6379; do
  "$engine" exec "$verifier" python -c "
import socket, sys
host, port = '$target'.split(':')
try:
    socket.create_connection((host, int(port)), 3)
except OSError as error:
    print('$target:', type(error).__name__, error)
else:
    sys.exit('$target answers')"
done

say "down"
begun_down=$SECONDS
"${compose[@]}" stop -t 60 >/dev/null 2>&1
echo "stopped in $((SECONDS - begun_down)) s"
down
trap - EXIT
say "done"
