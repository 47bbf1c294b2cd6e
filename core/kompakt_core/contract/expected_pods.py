"""status.expectedPods: what the pods of an attempt will ask for, before any of them exists. As values.

The operator asks the API server by a dry run, and writes of its answers what the planner needs. So a gang that waits for places
needs no pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kompakt_core.contract import ANN_GPUS_BY_CLAIM, INPUT_ANNOTATIONS, timestamps

# Of a pod's spec, what the planner reads or a pod's size, priority and nodes depend on.
_SPEC: Final = (
    "schedulerName", "schedulingGates", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead",
    "priority", "priorityClassName", "preemptionPolicy", "terminationGracePeriodSeconds",
)  # fmt: skip
_NOTES: Final = INPUT_ANNOTATIONS | {ANN_GPUS_BY_CLAIM}
_CONTAINER: Final = ("name", "resources", "restartPolicy")
_CLAIMS: Final = ("persistentVolumeClaim", "ephemeral")


@dataclass(frozen=True, slots=True)
class ExpectedPods:
    """Of one attempt. `since`: when the API server answered (RFC 3339, UTC). `pods`: one of each role, by the role's name; none
    where the pods are created before they have places, and `reason` says why.
    """

    attempt: int
    since: str
    pods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reason: str = ""


def trimmed(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Of a pod as the API server would admit it what the planner needs."""
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if key in _NOTES}
    kept: dict[str, Any] = {name: spec[name] for name in _SPEC if spec.get(name) is not None}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            kept[name] = [_only(container, _CONTAINER) for container in spec[name]]
    if claims := [_only(volume, ("name", *_CLAIMS)) for volume in spec.get("volumes") or () if _mounts_claim(volume)]:
        kept["volumes"] = claims
    return {"metadata": {"annotations": notes}, "spec": kept}


def _only(one: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: one[name] for name in names if one.get(name)}


def _mounts_claim(volume: Mapping[str, Any]) -> bool:
    return any(volume.get(name) for name in _CLAIMS)


def encode(expected: ExpectedPods) -> dict[str, Any]:
    """As it stands in the status."""
    written: dict[str, Any] = {"attempt": expected.attempt, "since": expected.since}
    if expected.reason:
        written["reason"] = expected.reason
    if expected.pods:
        written["roles"] = [{"name": role, "pod": pod} for role, pod in expected.pods.items()]
    return written


def readable(value: object) -> ExpectedPods | None:
    """None where it is missing or not as the operator writes it; what a pod asks for is read elsewhere."""
    if not isinstance(value, Mapping) or type(value.get("attempt")) is not int or timestamps.seconds(value.get("since")) is None:
        return None
    roles = value.get("roles", ())
    if not isinstance(roles, list | tuple) or not all(map(_is_role, roles)):
        return None
    pods = {one["name"]: one["pod"] for one in roles}
    return ExpectedPods(value["attempt"], value["since"], pods, str(value.get("reason", "")))


def _is_role(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("name"), str) and isinstance(value.get("pod"), Mapping)
