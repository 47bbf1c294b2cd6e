"""The ResourceClaim by which a worker gets exactly the GPUs of its place from a driver for dynamic resource allocation (DRA).

The operator lets the pod name a claim that does not exist yet, and says by an annotation for how many GPUs it is. The planner
writes the claim with the worker's place; the cluster's own scheduler allocates it, and can allocate nothing else.
API: resource.k8s.io/v1 (Kubernetes 1.34); expressions: CEL over `device` (KEP-4381).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.contract import counts
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid

GROUP: Final = "resource.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "ResourceClaim"
PLURAL: Final = "resourceclaims"
# By which containers and claims of a worker refer to its GPUs.
NAME: Final = "kompakt-gpus"
MAX_GPUS: Final = 32  # devices that one claim may be given (AllocationResultsMaxSize of resource.k8s.io/v1)


@dataclass(frozen=True, slots=True)
class ClaimedDevices:
    """Whose devices claims ask for: `device_class` as an administrator made it, `driver`, and the attribute `key` by which the
    driver publishes a GPU's UUID.
    """

    device_class: str
    driver: str
    key: str = "uuid"


@dataclass(frozen=True, slots=True)
class ClaimOwner:
    """The pod that a claim is for, and is named after."""

    namespace: str
    name: str
    uid: str


def encode(owner: ClaimOwner, gpus: Iterable[GpuUuid], devices: ClaimedDevices) -> dict[str, Any]:
    """The claim for exactly these GPUs."""
    uuids = sorted(set(gpus))
    request = {
        "deviceClassName": devices.device_class,
        "allocationMode": "ExactCount",
        "count": len(uuids),
        "selectors": [{"cel": {"expression": expression(uuids, devices)}}],
    }
    controller = {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": True}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": owner.name, "namespace": owner.namespace, "ownerReferences": [controller]},
        "spec": {"devices": {"requests": [{"name": NAME, "exactly": request}]}},
    }


def expression(uuids: Iterable[GpuUuid], devices: ClaimedDevices) -> str:
    """CEL that holds for these GPUs alone.

    kube-scheduler stops at an expression that fails, for whichever device, and allocates nothing. So nothing is read that another
    driver's device may lack. A number is in no list of texts, which is no failure (CEL specification, "Equality"); to ask for the
    type as well costs more than the API server allows.
    """
    key = f"device.attributes[{_text(devices.driver)}].{devices.key}"
    among = ", ".join(map(_text, sorted(uuids)))
    return f"device.driver == {_text(devices.driver)} && has({key}) && {key} in [{among}]"


def _text(value: str) -> str:
    """A literal of CEL. Driver and UUID come from flags and drivers."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def is_for(claim: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a claim as read is for the same pod and the same devices, and stays. The API server adds defaults, which do not
    matter.
    """
    leaves = bool((claim.get("metadata") or {}).get("deletionTimestamp"))
    return not leaves and _owner(claim) == _owner(wanted) and _request(claim) == _request(wanted)


def belongs_to(claim: Mapping[str, Any], pod_uid: str) -> bool:
    """Whether this pod is its controller."""
    return _owner(claim) == pod_uid


def in_use(claim: Mapping[str, Any]) -> bool:
    """Whether a scheduler has reserved it for a pod."""
    return bool((claim.get("status") or {}).get("reservedFor"))


def _owner(claim: Mapping[str, Any]) -> str:
    owners = (claim.get("metadata") or {}).get("ownerReferences") or ()
    return next((one.get("uid", "") for one in owners if one.get("controller") is True), "")


def _request(claim: Mapping[str, Any]) -> tuple[object, ...]:
    found = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly") or {}
        cel = tuple((one.get("cel") or {}).get("expression") for one in exactly.get("selectors") or ())
        found.append((exactly.get("deviceClassName"), exactly.get("count"), cel))
    return tuple(found)


def encode_size(gpus: int) -> dict[str, str]:
    """The annotation of a worker that gets so many GPUs by claim; 0 for one that works beside those."""
    return {contract.ANN_GPUS_BY_CLAIM: counts.encode(gpus)}


def is_asked(annotations: Mapping[str, str]) -> bool:
    """Whether a pod says that the planner writes its claim."""
    return contract.ANN_GPUS_BY_CLAIM in annotations


def size(annotations: Mapping[str, str]) -> int | None:
    """How many GPUs a pod gets by a claim of ours; None where it gets none by claim.

    Raises:
        InvalidInput: somebody wrote what the operator never writes.
    """
    text = annotations.get(contract.ANN_GPUS_BY_CLAIM)
    if text is None:
        return None
    number = counts.decode(text, contract.ANN_GPUS_BY_CLAIM, "GPUs")
    if number > MAX_GPUS:
        right = f"0 to {MAX_GPUS}, as many as a claim may have"
        raise InvalidInput(f"{contract.ANN_GPUS_BY_CLAIM}: {number} GPUs; right would be {right}")
    return number
