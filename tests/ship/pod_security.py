"""The restricted level of the Pod Security Standards (kubernetes.io/docs/concepts/security/pod-security-standards)."""

from __future__ import annotations

from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SECCOMP = {"RuntimeDefault", "Localhost"}


def violations(pod: dict[str, Any]) -> list[str]:
    """What the level does not allow; empty where it allows the pod."""
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    found += [f"volume {volume['name']}" for volume in pod.get("volumes", []) if not set(volume) - {"name"} <= VOLUMES]
    shared = pod.get("securityContext", {})
    if shared.get("sysctls"):
        found.append("sysctls")
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        found += [f"{container['name']}: {what}" for what in _of_container(container, shared)]
    return found


def _of_container(container: dict[str, Any], shared: dict[str, Any]) -> list[str]:
    own = shared | container.get("securityContext", {})
    capabilities = own.get("capabilities", {})
    broken = {
        "privileged": bool(own.get("privileged")),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
        "runAsNonRoot": own.get("runAsNonRoot") is not True,
        "runAsUser": own.get("runAsUser") == 0,
        "seccompProfile": own.get("seccompProfile", {}).get("type") not in SECCOMP,
        "capabilities.drop": "ALL" not in capabilities.get("drop", []),
        "capabilities.add": not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
        "procMount": own.get("procMount", "Default") != "Default",
        "hostPort": any(port.get("hostPort") for port in container.get("ports", [])),
        "hostProcess": bool(own.get("windowsOptions", {}).get("hostProcess")),
    }
    return [what for what, is_broken in broken.items() if is_broken]
