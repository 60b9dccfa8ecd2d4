"""Run the chart's pods with `podman kube play`, and its test job, where there is no cluster.

Podman knows pods and secrets, not Services, StatefulSets or network policies: each rendered workload becomes one pod,
named as the Service in front of it, so that names resolve. Specs of pods are the chart's own, less ports (podman 4
would publish them all on the host) and probes (it runs them with curl; they are asked here). Images:
`localhost/potstill/*`, and `localhost/smoke-valkey` of local_bases.sh.

    python -m deploy.smoke.kube_play                                   # everything, and the test job
    python -m deploy.smoke.kube_play valkey verifier gateway rollout   # some
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
import time
from typing import Any

import yaml

from tests.ship.chart import objects

NETWORK = "potstill-kube"
VALUES: dict[str, Any] = {
    "secret": {"existing": "potstill"},
    "images": {"prefix": "localhost/potstill", "pullPolicy": "Never"},
    "student": {"model": "/models/small-pair/student", "resources": {"requests": {"cpu": "1"}, "limits": {}}},
    "teacher": {"dtype": "float32", "resources": {"requests": {"cpu": "1"}, "limits": {}}},
    "teachers": {"sums": {"model": "/models/small-pair/teacher"}},
    "models": {"hub": False, "existingClaim": "potstill-kube-models"},
    "artifacts": {"existingClaim": "potstill-kube-artifacts"},
    "gateway": {"service": {"port": 8080}},
    "valkey": {"image": "localhost/smoke-valkey"},
}
SECRET = {"token": secrets.token_hex(32), "valkey-password": secrets.token_hex(32)}
ORDER = ("valkey", "verifier", "student", "teacher", "gateway", "rollout", "learner", "test")
LEARNER = f"{VALUES['images']['prefix']}/learner:0.1.0-cpu"
PATIENCE_SECONDS = 600
FACTS = "user={{.Config.User}} read-only={{.HostConfig.ReadonlyRootfs}} {{.HostConfig.SecurityOpt}}"
TRAIN = "python -m examples.small_pair.train --folder /models/small-pair"


def podman(*arguments: str, given: str | None = None, check: bool = True) -> str:
    done = subprocess.run(["podman", *arguments], input=given, capture_output=True, text=True, check=False)
    if check and done.returncode:
        sys.exit(f"podman {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def pods() -> list[dict[str, Any]]:
    """The chart's pods, in starting order."""
    found = []
    for one in objects(VALUES):
        if one["kind"] in ("Deployment", "StatefulSet"):
            template = one["spec"]["template"]
            metadata = {"name": one["metadata"]["name"], "labels": template["metadata"]["labels"]}
            claims = one["spec"].get("volumeClaimTemplates", [])
            spec = template["spec"] | {"volumes": template["spec"]["volumes"] + [_volume(claim) for claim in claims]}
            found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        elif one["kind"] == "Pod":
            found.append(one)
    for pod in found:
        for key in ("ports", "startupProbe", "readinessProbe", "livenessProbe"):
            pod["spec"]["containers"][0].pop(key, None)
    return sorted(found, key=lambda pod: ORDER.index(pod["metadata"]["labels"]["app.kubernetes.io/component"]))


def _volume(claim: dict[str, Any]) -> dict[str, Any]:
    name = claim["metadata"]["name"]
    return {"name": name, "persistentVolumeClaim": {"claimName": f"potstill-kube-{name}"}}


def answers(pod: str, container: str, path: str) -> bool:
    """Whether it answers as the chart's probe asks."""
    probe = "REDISCLI_AUTH=$VALKEY_PASSWORD valkey-cli ping | grep -q PONG"
    if container != "valkey":
        probe = f"python /opt/potstill/probe.py {path}"
    done = subprocess.run(["podman", "exec", f"{pod}-{container}", "sh", "-c", probe], capture_output=True, check=False)
    return done.returncode == 0


def make_secret() -> None:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in SECRET.items()}
    if podman("version", "--format", "{{.Client.Version}}").startswith("4.3."):  # it reads secrets in a form of its own
        podman("secret", "create", "potstill", "-", given=json.dumps(data))
        return
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "potstill"}, "data": data}
    podman("kube", "play", "-", given=yaml.safe_dump(secret))


def start(pod: dict[str, Any]) -> None:
    for variable in pod["spec"]["containers"][0]["env"]:
        if "$(VALKEY_PASSWORD)" in variable.get("value", ""):  # Kubernetes fills it in, podman does not
            variable["value"] = variable["value"].replace("$(VALKEY_PASSWORD)", SECRET["valkey-password"])
    podman("kube", "play", "--network", NETWORK, "-", given=yaml.safe_dump(pod))


def main(components: list[str]) -> int:
    begun = time.monotonic()
    podman("network", "create", NETWORK)
    for name, owner in (("models", "10001:10001"), ("artifacts", "10001:10001"), ("data", "999:1000")):
        podman("volume", "create", f"potstill-kube-{name}")
        podman("run", "--rm", "--user", "0", "-v", f"potstill-kube-{name}:/v", LEARNER, "chown", owner, "/v")
    if "student" in components:
        examples = ("-v", "./examples:/work/examples:ro", "-w", "/work", "-v", "potstill-kube-models:/models")
        trained = podman("run", "--rm", "--network", "none", "--read-only", *examples, LEARNER, *TRAIN.split())
        print(trained.splitlines()[-1])
    make_secret()
    for pod in pods():
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
        if container not in components:
            continue
        start(pod)
        if container == "test":
            return watch_test(f"{name}-test")
        # A worker is ready when all that it calls are; without them it can only be live.
        path = "/livez" if container == "rollout" and "student" not in components else "/readyz"
        while not answers(name, container, path):
            if time.monotonic() - begun > PATIENCE_SECONDS:
                sys.exit(
                    f"{name} does not answer: {podman('logs', '--tail', '20', f'{name}-{container}', check=False)}"
                )
            time.sleep(1)
        facts = podman("inspect", f"{name}-{container}", "--format", FACTS)
        print(
            f"[{time.monotonic() - begun:4.0f} s] {name}: {path if container != 'valkey' else 'PONG'}, {facts}",
            flush=True,
        )
    return 0


def watch_test(container: str) -> int:
    code = podman("wait", container).splitlines()[-1]
    print(podman("logs", container))
    print(f"the test job ended with code {code}")
    return int(code)


def clean() -> None:
    for pod in pods():
        podman("pod", "rm", "-f", "-t", "5", pod["metadata"]["name"], check=False)
    podman("secret", "rm", "potstill", check=False)
    for name in ("models", "artifacts", "data"):
        podman("volume", "rm", "-f", f"potstill-kube-{name}", check=False)
    podman("network", "rm", "-f", NETWORK, check=False)


if __name__ == "__main__":
    try:
        outcome = main(sys.argv[1:] or list(ORDER))
    finally:
        clean()
    sys.exit(outcome)
