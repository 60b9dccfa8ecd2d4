"""The Helm chart, rendered by Helm itself: valid, restricted, explicit about every flow, and true about the code."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml
from helm_python import HelmError, lint
from torch.distributed.run import get_args_parser

from k8s import sync
from potstill.broker import keys
from potstill.contracts.job import JobSpec
from services.verifier.metrics import queue_depth
from tests.ship.chart import CASES, CHART, LEAST, case, environment, golden, manifests, named, objects, of_kind, pods
from tests.ship.compose_file import ROOT, services
from tests.ship.pod_security import violations
from tests.ship.settings_models import SETTINGS, loaded, unknown_variables

CUSTOM = ("PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication")


@cache
def rendered(name: str) -> list[dict[str, Any]]:
    return objects(case(name))


def changed(**changes: Any) -> dict[str, Any]:
    """The least values with top-level keys replaced."""
    return copy.deepcopy(LEAST) | changes


@pytest.mark.parametrize("name", CASES)
def test_renders_are_those_that_were_reviewed(name: str) -> None:
    assert golden(name) == (Path(__file__).parent / "golden" / f"{name}.yaml").read_text(), (
        "run make golden, and read it"
    )


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("name", CASES)
def test_kubernetes_takes_every_object(name: str, version: str) -> None:
    for one in rendered(name):
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("name", CASES)
def test_every_pod_meets_the_restricted_level(name: str) -> None:
    found = list(pods(rendered(name)))
    assert len(found) >= 7
    for pod_name, _, pod in found:
        assert violations(pod) == [], pod_name
        assert pod["automountServiceAccountToken"] is False
        assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in pod["containers"])
        assert all({"requests", "limits"} <= set(one["resources"]) for one in pod["containers"])


@pytest.mark.parametrize("name", CASES)
def test_settings_are_those_of_the_process(name: str) -> None:
    seen = set()
    for pod_name, labels, pod in pods(rendered(name)):
        process = labels["app.kubernetes.io/component"]
        if process in SETTINGS:
            seen.add(process)
            variables = environment(pod)
            assert unknown_variables(process, set(variables)) == set(), pod_name
            settings = loaded(process, variables)
            assert pod["terminationGracePeriodSeconds"] > settings.drain_seconds + 5
    assert seen == set(SETTINGS)


@pytest.mark.parametrize("name", CASES)
def test_urls_lead_to_services_that_select_ready_pods(name: str) -> None:
    found = rendered(name)
    for _, labels, pod in pods(found):
        if labels["app.kubernetes.io/component"] not in ("gateway", "rollout"):
            continue
        settings = loaded(labels["app.kubernetes.io/component"], environment(pod))
        urls = [settings.student_url, settings.verifier_url, *settings.teachers.values()]  # type: ignore[attr-defined]
        if "redis.example.com" not in settings.redis_url:
            urls.append(settings.redis_url)
        for host, port in (re.search(r"//(?:.*@)?([\w-]+):(\d+)", url).groups() for url in urls):  # type: ignore[union-attr]
            service = named(found, "Service", host)["spec"]
            assert [one["port"] for one in service["ports"]] == [int(port)]
            assert any(service["selector"].items() <= candidate.items() for _, candidate, _ in pods(found)), host


def test_the_teachers_of_the_registry_each_have_a_deployment() -> None:
    found = rendered("two_lanes_gpu")
    maths = named(found, "Deployment", "demo-potstill-teacher-maths")["spec"]
    assert maths["replicas"] == 2
    container = maths["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] == 1800
    settings = loaded("teacher", environment(maths["template"]["spec"]))
    assert settings.teacher_tensor_parallel == 4  # type: ignore[attr-defined]
    assert settings.teacher_engine == "vllm"  # type: ignore[attr-defined]
    workers = loaded(
        "rollout", environment(named(found, "Deployment", "demo-potstill-rollout-a")["spec"]["template"]["spec"])
    )
    assert set(workers.teachers) == {"maths", "general"}  # type: ignore[attr-defined]


def test_a_lane_has_its_own_student_learner_and_workers() -> None:
    found = rendered("two_lanes_gpu")
    for lane in ("a", "b"):
        for process in ("student", "rollout", "learner"):
            kind = "StatefulSet" if process == "learner" else "Deployment"
            pod = named(found, kind, f"demo-potstill-{process}-{lane}")["spec"]["template"]["spec"]
            assert loaded(process, environment(pod)).lane == lane
        rollout = named(found, "Deployment", f"demo-potstill-rollout-{lane}")["spec"]["template"]["spec"]
        assert environment(rollout)["POTSTILL_STUDENT_URL"] == f"http://demo-potstill-student-{lane}:8080"


@pytest.mark.parametrize("name", CASES)
def test_probes_ask_what_every_process_answers(name: str) -> None:
    source = (ROOT / "potstill/service/app.py").read_text()
    for _, labels, pod in pods(rendered(name)):
        if labels["app.kubernetes.io/component"] in SETTINGS:
            container = pod["containers"][0]
            for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
                assert container[probe]["httpGet"] == {"path": path, "port": "http"}
                assert f'@app.get("{path}"' in source
            assert container["livenessProbe"]["timeoutSeconds"] > 20  # LIVENESS_SECONDS of the app itself
            assert container["ports"] == [{"name": "http", "containerPort": 8080}]


def test_gpus_are_never_asked_for_twice_during_an_update() -> None:
    for one in of_kind(rendered("two_lanes_gpu"), "Deployment"):
        limits = one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        strategy = one["spec"]["strategy"]
        surges = strategy["type"] == "RollingUpdate" and strategy["rollingUpdate"]["maxSurge"] != 0
        assert surges != ("nvidia.com/gpu" in limits), one["metadata"]["name"]


def test_an_update_fails_no_sooner_than_a_model_may_take_to_load() -> None:
    for one in of_kind(rendered("two_lanes_gpu"), "Deployment"):
        startup = one["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
        assert one["spec"]["progressDeadlineSeconds"] > startup["failureThreshold"] * startup["periodSeconds"]


def test_a_pod_that_never_got_ready_is_replaced_by_the_next_update() -> None:
    found = of_kind(rendered("one_lane_cpu"), "StatefulSet")
    assert {one["metadata"]["name"] for one in found} == {"demo-potstill-learner-default", "demo-potstill-valkey"}
    assert {one["spec"]["podManagementPolicy"] for one in found} == {"Parallel"}


def test_a_learner_has_its_time_to_stop_after_it_was_asked_to() -> None:
    for seconds in (0, 7, 60):
        found = objects(changed(preStopSeconds=seconds, learner={"stopSeconds": 90}))
        pod = named(found, "StatefulSet", "demo-potstill-learner-default")["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] >= seconds + 90


def test_a_learner_of_two_nodes_is_one_that_torchrun_can_start() -> None:
    found = rendered("learner_of_two_nodes")
    name = "demo-potstill-learner-default"
    learner = named(found, "StatefulSet", name)
    assert learner["spec"]["replicas"] == 2
    (container,) = learner["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "torch.distributed.run"]
    variables = {one["name"]: one.get("valueFrom") for one in container["env"]}
    assert variables["POD_INDEX"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
    asked = get_args_parser().parse_args([part.replace("$(POD_INDEX)", "1") for part in container["args"]])
    assert (asked.nnodes, asked.nproc_per_node, asked.node_rank, asked.max_restarts) == ("2", "4", 1, 0)
    assert (asked.module, asked.training_script) == (True, "learner")
    assert asked.master_addr == f"{name}-0.{name}"
    service = named(found, "Service", name)["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    policy = named(found, "NetworkPolicy", "demo-potstill-ranks-default")["spec"]
    labels = policy["podSelector"]["matchLabels"]
    assert labels.items() <= learner["spec"]["template"]["metadata"]["labels"].items()
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": labels}}]}]
    assert policy["egress"] == [{"to": [{"podSelector": {"matchLabels": labels}}]}]


@pytest.mark.parametrize(
    ("learner", "processes"),
    [({"gpus": 1}, None), ({"gpus": 2}, 2), ({"processesPerNode": 3}, 3), ({"nodes": 2}, 1)],
    ids=str,
)
def test_a_learner_has_a_process_for_each_gpu(learner: dict[str, int], processes: int | None) -> None:
    found = objects(changed(learner=learner, artifacts={"accessMode": "ReadWriteMany"}))
    pod = named(found, "StatefulSet", "demo-potstill-learner-default")["spec"]["template"]["spec"]
    arguments = pod["containers"][0].get("args")
    assert (arguments and arguments[1]) == (processes and f"--nproc-per-node={processes}")


def test_names_that_look_like_numbers_stay_names() -> None:
    found = objects(
        changed(
            lanes=[{"name": "1"}, {"name": "2"}],
            teachers={"7": {"model": "m/x"}},
            autoscaling={"rollout": {"mode": "hpa"}},
            preStopSeconds=0,  # a sleep of which would not be valid before Kubernetes 1.34
        ),
        name="2024",
    )
    for one in found:
        kubernetes_validate.validate(one, "1.30", strict=True)
    for name, labels, pod in pods(found):
        assert labels["app.kubernetes.io/instance"] == "2024"
        assert "lifecycle" not in pod["containers"][0]
        assert all(isinstance(one.get("value", ""), str) for one in pod["containers"][0]["env"]), name
    job = yaml.safe_load(environment(named(found, "Pod", "2024-potstill-test")["spec"])["JOB"])
    assert list(JobSpec.model_validate(job).teachers) == ["7"]


def test_the_queue_refuses_what_it_has_no_room_for_before_it_would_be_killed() -> None:
    container = named(rendered("one_lane_cpu"), "StatefulSet", "demo-potstill-valkey")["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert "maxmemory 1400mb\n" in container["command"][-1]
    assert "maxmemory-policy noeviction\n" in container["command"][-1]
    assert container["resources"]["limits"]["memory"] == "2Gi"


def test_a_queue_of_ones_own_is_spoken_to_as_its_user() -> None:
    own = {"host": "redis.example.com", "username": "distil", "database": 4}
    found = objects(changed(externalRedis=own, autoscaling={"rollout": {"mode": "keda"}}))
    for name, labels, pod in pods(found):
        if labels["app.kubernetes.io/component"] in ("gateway", "rollout", "learner"):
            url = urlsplit(environment(pod)["POTSTILL_REDIS_URL"])
            assert (url.username, url.password, url.hostname) == ("distil", "f" * 64, "redis.example.com"), name
    (trigger,) = named(found, "ScaledObject", "demo-potstill-rollout-default")["spec"]["triggers"]
    assert (trigger["metadata"]["username"], trigger["metadata"]["databaseIndex"]) == ("distil", "4")


def test_disruption_budgets_are_only_for_what_has_replicas() -> None:
    assert of_kind(rendered("one_lane_cpu"), "PodDisruptionBudget") == []
    names = {one["metadata"]["name"] for one in of_kind(rendered("two_lanes_gpu"), "PodDisruptionBudget")}
    assert names == {f"demo-potstill-{what}" for what in ("gateway", "verifier", "student-a", "teacher-maths")}


def _policy(found: list[dict[str, Any]], component: str) -> dict[str, Any]:
    spec: dict[str, Any] = named(found, "NetworkPolicy", f"demo-potstill-{component}")["spec"]
    return spec


def test_nothing_flows_unless_a_policy_says_so() -> None:
    for name in ("one_lane_cpu", "two_lanes_gpu", "external_redis"):
        found = rendered(name)
        deny = _policy(found, "deny")
        assert deny["policyTypes"] == ["Ingress", "Egress"]
        assert "ingress" not in deny
        assert "egress" not in deny
        for _, labels, _ in pods(found):
            assert deny["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_verifier_reaches_nothing_not_even_a_name_server() -> None:
    for name in ("one_lane_cpu", "two_lanes_gpu", "external_redis"):
        verifier = _policy(rendered(name), "verifier")
        assert verifier["egress"] == []
        callers = {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for peer in verifier["ingress"][0]["from"]
            if "podSelector" in peer
        }
        assert callers == {"gateway", "rollout"}


def test_flows_are_those_of_the_design() -> None:
    found = rendered("external_redis")
    assert _policy(found, "student")["egress"] == []
    assert _policy(found, "learner")["egress"][1:] == [
        {"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}], "ports": [{"protocol": "TCP", "port": 6380}]}
    ]
    assert not any(one["metadata"]["name"].endswith("-valkey") for one in found)
    assert _policy(rendered("two_lanes_gpu"), "rollout")["egress"][-1]["ports"] == [{"protocol": "TCP", "port": 8443}]
    keda = _policy(rendered("two_lanes_gpu"), "valkey")["ingress"][0]["from"][-1]
    assert keda == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}


@pytest.mark.parametrize("name", CASES)
def test_only_the_learner_and_the_test_write_artifacts(name: str) -> None:
    for _, labels, pod in pods(rendered(name)):
        mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
        if "artifacts" in mounts:
            writes = not mounts["artifacts"].get("readOnly", False)
            assert writes == (labels["app.kubernetes.io/component"] in ("learner", "test"))


def test_a_volume_of_one_node_keeps_its_pods_together() -> None:
    for _, labels, pod in pods(rendered("single_node")):
        mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        (term,) = (
            pod.get("affinity", {}).get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [None])
        )
        assert (term is not None) == ("artifacts" in mounts)
        if term:
            assert term["labelSelector"]["matchLabels"].items() <= labels.items()


def test_the_verifier_may_have_a_runtime_of_its_own() -> None:
    for _, labels, pod in pods(rendered("external_redis")):
        is_verifier = labels["app.kubernetes.io/component"] == "verifier"
        assert pod.get("runtimeClassName") == ("gvisor" if is_verifier else None)


@pytest.mark.parametrize("name", CASES)
def test_secrets_are_named_and_never_written(name: str) -> None:
    assert of_kind(rendered(name), "Secret") == []
    secret = case(name)["secret"]["existing"]
    for _, _, pod in pods(rendered(name)):
        for variable in pod["containers"][0].get("env", []):
            if re.search("TOKEN|PASSWORD|_API_KEY", variable["name"]):
                assert variable["valueFrom"]["secretKeyRef"]["name"] == secret


def test_workers_are_scaled_by_the_stream_that_the_broker_uses() -> None:
    found = rendered("two_lanes_gpu")
    for lane in ("a", "b"):
        scaled = named(found, "ScaledObject", f"demo-potstill-rollout-{lane}")["spec"]
        (trigger,) = scaled["triggers"]
        assert trigger["metadata"]["stream"] == keys.tickets(lane)
        assert "consumerGroup" not in trigger["metadata"]  # with one, KEDA would not look at the length
        assert trigger["metadata"]["address"] == "demo-potstill-valkey.distil.svc:6379"
        target = named(found, "Deployment", scaled["scaleTargetRef"]["name"])
        assert "replicas" not in target["spec"]


def test_workers_are_scaled_by_metrics_that_exist() -> None:
    table = (ROOT / "docs/metrics.md").read_text()
    external = named(rendered("external_redis"), "HorizontalPodAutoscaler", "demo-potstill-rollout-default")["spec"]
    metric = external["metrics"][0]["external"]["metric"]
    assert f"`{metric['name']}`" in table
    assert metric["selector"]["matchLabels"] == {"namespace": "distil", "lane": "default"}
    pod_metric = named(rendered("single_node"), "HorizontalPodAutoscaler", "demo-potstill-verifier")["spec"]["metrics"][
        0
    ]
    query = named(rendered("external_redis"), "ScaledObject", "demo-potstill-verifier")["spec"]["triggers"][0][
        "metadata"
    ]
    (described,) = queue_depth.collect()
    assert pod_metric["pods"]["metric"]["name"] == described.name
    assert query["query"] == f'sum({described.name}{{namespace="distil"}})'


def test_metrics_are_scraped_from_every_process_of_ours() -> None:
    monitor = named(rendered("two_lanes_gpu"), "PodMonitor", "demo-potstill")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    assert {rule["targetLabel"] for rule in endpoint["relabelings"]} == {"service", "lane"}
    assert of_kind(rendered("one_lane_cpu"), *CUSTOM) == []


def test_rules_and_dashboards_are_those_of_the_repository() -> None:
    copies = {path.name: path.read_bytes() for path in sync.COPIES.glob("*") if path.suffix in (".yml", ".json")}
    assert copies == {path.name: path.read_bytes() for path in sync.sources()}, "run make chart"
    found = objects(changed(monitoring={"rules": True, "dashboards": True}))
    boards = of_kind(found, "ConfigMap")
    contents = {name: json.loads(text) for one in boards for name, text in one["data"].items()}
    assert contents == {path.name: json.loads(path.read_text()) for path in sync.sources() if path.suffix == ".json"}
    rules = of_kind(found, "PrometheusRule")
    assert len(rules) == len([path for path in sync.sources() if path.suffix == ".yml"])
    assert all(one["spec"]["groups"] for one in rules)


def test_the_test_job_is_one_that_the_gateway_would_take() -> None:
    pod = named(rendered("one_lane_cpu"), "Pod", "demo-potstill-test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    variables = environment(pod["spec"])
    spec = JobSpec.model_validate(yaml.safe_load(variables["JOB"]))
    assert spec.student.model == LEAST["student"]["model"]
    assert set(spec.teachers) == set(LEAST["teachers"])
    assert variables["POTSTILL_URL"] == "http://demo-potstill-gateway:80"


def test_the_notes_tell_the_next_command() -> None:
    notes = manifests(case("one_lane_cpu"))["NOTES.txt"]
    assert "helm test demo -n distil" in notes
    assert "port-forward service/demo-potstill-gateway 8080:80" in notes


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no secret": ({"secret": {}}, "secret.existing is empty: make a Secret and name it"),
    "no student": ({"student": {}}, "student.model is empty"),
    "no teacher": ({"teachers": {}}, "teachers is empty: name at least one"),
    "a teacher without a model": ({"teachers": {"maths": {}}}, "teachers.maths.model is empty"),
    "two lanes of a name": ({"lanes": [{"name": "a"}, {"name": "a"}]}, "two lanes are called a"),
    "two learners in a lane": (
        {"lanes": [{"name": "a", "learner": {"replicas": 2}}]},
        "lane a asks for 2 learners, and a lane has one",
    ),
    "two processes on a GPU": ({"learner": {"gpus": 1, "processesPerNode": 2}}, "a process has one GPU"),
    "two nodes and a volume of one": (
        {"learner": {"nodes": 2}, "artifacts": {"accessMode": "ReadWriteOnce"}},
        "use a ReadWriteMany class, or one node",
    ),
    "no time to drain": ({"terminationGracePeriodSeconds": 20}, "requests in flight would be cut off. Raise it to 25"),
    "a hub id without a hub": (
        {"models": {"hub": False, "existingClaim": "m"}},
        "models.hub is off: name a folder below /models",
    ),
    "no place for models": ({"models": {"hub": False}}, "there is nowhere to take models from"),
    "no prometheus": ({"autoscaling": {"verifier": {"mode": "keda"}}}, "autoscaling.prometheusUrl is empty"),
    "no room to scale": ({"autoscaling": {"rollout": {"minReplicas": 9}}}, "minReplicas 9 is more than maxReplicas 8"),
    "a load balancer that nobody may use": (
        {"gateway": {"service": {"type": "LoadBalancer"}}},
        "callers from outside the namespace would be cut off. Name who may call",
    ),
    "a queue that may outgrow its pod": (
        {"valkey": {"maxmemory": "2gb"}},
        "valkey.maxmemory 2gb is more than three quarters of valkey.resources.limits.memory 2Gi",
    ),
    "an unknown key": ({"gatway": {}}, "additional properties 'gatway' not allowed"),
    "an unknown key inside": ({"verifier": {"runtimeclass": "x"}}, "additional properties 'runtimeclass' not allowed"),
    "a setting that is none": ({"rollout": {"settings": {"LEASE": "3"}}}, "LEASE"),
    "a lane name that is no label": ({"lanes": [{"name": "Lane_1"}]}, "does not match pattern"),
    "a word for a number": ({"drainSeconds": "long"}, "want integer"),
    "a digest that is none": ({"images": {"digests": {"gateway": "latest"}}}, "does not match pattern"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_values_that_cannot_work_are_refused_with_what_to_do(what: str) -> None:
    changes, message = REFUSED[what]
    with pytest.raises(HelmError) as refusal:
        manifests(changed(**changes))
    assert message in str(refusal.value)


def test_no_object_in_the_schema_takes_what_it_does_not_know() -> None:
    def loose(node: Any, path: str) -> list[str]:
        if isinstance(node, list):
            return [one for index, item in enumerate(node) for one in loose(item, f"{path}[{index}]")]
        if not isinstance(node, dict):
            return []
        here = [path] if node.get("type") == "object" and node.get("additionalProperties") is not False else []
        return here + [one for key, value in node.items() for one in loose(value, f"{path}.{key}")]

    schema = json.loads((CHART / "values.schema.json").read_text())
    # What Kubernetes itself leaves open: quantities and labels by name, selectors; and `global`, which is Helm's.
    allowed = {".$defs.quantities", ".$defs.nodeSelector", ".$defs.labels", ".properties.global"}
    allowed |= {f".$defs.peers.items.properties.{name}" for name in ("podSelector", "namespaceSelector")}
    assert set(loose(schema, "")) == allowed


def test_the_readme_lists_the_values_as_they_are() -> None:
    assert (CHART / "README.md").read_text() == sync.readme(), "run make chart"


def test_the_chart_has_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert f"appVersion: {version[1]}\n" in (CHART / "Chart.yaml").read_text()


def test_chart_and_compose_file_run_the_same_valkey() -> None:
    statefulset = named(rendered("one_lane_cpu"), "StatefulSet", "demo-potstill-valkey")
    assert statefulset["spec"]["template"]["spec"]["containers"][0]["image"] == services()["valkey"]["image"]


@pytest.mark.parametrize("name", CASES)
def test_helm_finds_nothing_to_say_against_the_chart(name: str) -> None:
    report = lint(CHART, values=case(name))
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []  # 1: an icon is recommended
