"""What a driver for dynamic resource allocation publishes, on simulated nodes: its DeviceClass, and ResourceSlices with the GPUs
of their GPUTopologies. Nobody prepares devices there; kube-scheduler allocates them all the same.
"""

from typing import Any, Final

from kompakt_client.requests import ApiRequest
from tests.support.cluster.reading import topologies
from tools.kube.session import ClusterSession

DRIVER: Final = "gpu.nvidia.com"
GROUP: Final = "resource.k8s.io"
API: Final = f"/apis/{GROUP}/v1"


def device_class(name: str = DRIVER, driver: str = DRIVER) -> dict[str, Any]:
    expression = f"device.driver == '{driver}'"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def resource_slice(node: str, uuids: list[str], driver: str = DRIVER, key: str = "uuid") -> dict[str, Any]:
    """All devices of a node, called gpu-0 and so on."""
    devices = [{"name": f"gpu-{index}", "attributes": {key: {"string": uuid}}} for index, uuid in enumerate(uuids)]
    devices += [{"name": "bare"}, {"name": "numbered", "attributes": {key: {"int": 7}}}]  # which no expression may stumble over
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": f"{GROUP}/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node}-{driver}"}, "spec": spec}


def publish(cluster: ClusterSession) -> None:
    """The slices of all nodes, and their class."""
    cluster.parts.api.create(f"{API}/deviceclasses", device_class())
    for node, uuids in _uuids(cluster).items():
        cluster.parts.api.create(f"{API}/resourceslices", resource_slice(node, uuids))


def taint(cluster: ClusterSession, name: str, node: str, device: str, effect: str) -> None:
    """An administrator taints a device."""
    selector = {"driver": DRIVER, "pool": node, "device": device}
    spec = {"deviceSelector": selector, "taint": {"key": "example.com/service", "effect": effect}}
    made = {"apiVersion": f"{GROUP}/v1", "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}
    cluster.parts.api.create(f"{API}/devicetaintrules", made)


def untaint(cluster: ClusterSession, name: str) -> None:
    """The rule goes."""
    cluster.parts.api.send(ApiRequest("DELETE", f"{API}/devicetaintrules/{name}"))


def claims(cluster: ClusterSession, namespace: str) -> dict[str, dict[str, Any]]:
    """By name."""
    found = cluster.parts.api.get(f"{API}/namespaces/{namespace}/resourceclaims")["items"]
    return {one["metadata"]["name"]: one for one in found}


def _uuids(cluster: ClusterSession) -> dict[str, list[str]]:
    """Of each node, by index."""
    return {name: [gpu["uuid"] for gpu in one["spec"]["gpus"]] for name, one in topologies(cluster).items()}


def device_of(cluster: ClusterSession, uuid: str) -> str:
    """The name of a GPU's device."""
    return next(f"gpu-{uuids.index(uuid)}" for uuids in _uuids(cluster).values() if uuid in uuids)


def allocated(cluster: ClusterSession, claim: dict[str, Any]) -> set[str]:
    """The GPUs that kube-scheduler gave it."""
    known = _uuids(cluster)
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", ())
    return {known[one["pool"]][int(one["device"].removeprefix("gpu-"))] for one in devices}


def allocate(cluster: ClusterSession, namespace: str, name: str, node: str, devices: list[str]) -> None:
    """Somebody else's claim for these devices, allocated as a scheduler does it."""
    where = f"{API}/namespaces/{namespace}/resourceclaims"
    request = {"name": "all", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": len(devices)}}
    spec = {"devices": {"requests": [request]}}
    meta = {"name": name, "namespace": namespace}
    made = cluster.parts.api.create(where, {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec})
    results = [{"request": "all", "driver": DRIVER, "pool": node, "device": device} for device in devices]
    body = {**made, "status": {"allocation": {"devices": {"results": results}}}}
    cluster.parts.api.send(ApiRequest("PUT", f"{where}/{name}/status", body=body))
