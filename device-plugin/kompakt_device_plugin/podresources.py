"""Which devices kubelet has really given to which pod: its pod resources service, v1."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc

from kompakt_core import contract
from kompakt_core.contract.claimed_devices import ClaimedDevice
from kompakt_core.ids import GpuUuid
from kompakt_device_plugin.proto import podresources_pb2 as pb
from kompakt_device_plugin.proto import podresources_pb2_grpc as pb_grpc
from kompakt_device_plugin.reconcile import PodKey

POD_RESOURCES: Final = "pod-resources"  # in kubelet's folder
NO_DEVICES: Final[Mapping[ClaimedDevice, GpuUuid]] = {}
SOCKET: Final = f"{POD_RESOURCES}/kubelet.sock"
_SECONDS: Final = 3.0
_SHARE: Final = "::"  # before the number of a share of one GPU, as NVIDIA's device plugin names shares


class PodResources:
    """A client of one kubelet; it connects anew by itself after a restart of kubelet."""

    def __init__(self, kubelet_dir: Path, resource: str = contract.RESOURCE) -> None:
        """`resource`: by which name kubelet gives them."""
        self._resource = resource
        self._channel = grpc.insecure_channel(f"unix://{kubelet_dir / SOCKET}", options=[("grpc.max_reconnect_backoff_ms", 1000)])
        self._stub = pb_grpc.PodResourcesListerStub(self._channel)

    def taken(self, claimed: Mapping[ClaimedDevice, GpuUuid] = NO_DEVICES) -> dict[PodKey, frozenset[GpuUuid]]:
        """The GPUs of each pod that has some, by (namespace, name), by the resource or by claims; `claimed`: which GPU a device
        of a claim is. Raises grpc.RpcError where kubelet does not answer.
        """
        answer = self._stub.List(pb.ListPodResourcesRequest(), timeout=_SECONDS)
        by_pod = {
            (pod.namespace, pod.name): frozenset(
                (*gpus_of(pod.containers, self._resource), *gpus_by_claims(pod.containers, claimed))
            )
            for pod in answer.pod_resources
        }
        return {key: gpus for key, gpus in by_pod.items() if gpus}

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()


def gpus_by_claims(containers: Iterable[Any], claimed: Mapping[ClaimedDevice, GpuUuid]) -> Iterable[GpuUuid]:
    """The GPUs that a pod's containers have by ResourceClaims; a device that is no GPU of the node's is none."""
    claims = (claim for container in containers for claim in container.dynamic_resources) if claimed else ()
    devices = (
        ClaimedDevice(one.driver_name, one.pool_name, one.device_name) for claim in claims for one in claim.claim_resources
    )
    return (claimed[device] for device in devices if device in claimed)


def gpus_of(containers: Iterable[Any], resource: str) -> Iterable[GpuUuid]:
    """A resource's devices among those of a pod's containers; kubelet lists each in an entry of its own, or several in one."""
    entries = (entry for container in containers for entry in container.devices if entry.resource_name == resource)
    return (GpuUuid(device.partition(_SHARE)[0]) for entry in entries for device in entry.device_ids)
