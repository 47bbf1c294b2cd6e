"""Another device plugin that serves the same resource on this node.

kubelet keeps both connected, lets the one that registered last answer, and tells nobody. Two things give it away: its socket in
kubelet's folder, and a pod with GPUs that were not handed over here.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from kompakt_core import contract
from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.ids import GpuUuid
from kompakt_device_plugin.journal import JournalEntry
from kompakt_device_plugin.pods import NodePod
from kompakt_device_plugin.reconcile import PodKey
from kompakt_device_plugin.registration import SOCKETS, is_dead

Rival = Callable[[], str]  # how it shows; empty for none
NOBODY: Final[PodKey] = ("", "")  # the holder of GPUs that were handed over to a pod not known yet


def unserved(
    taken: Mapping[PodKey, frozenset[GpuUuid]],
    before: Iterable[GpuHolder],
    handed: Iterable[JournalEntry],
    pods: Iterable[NodePod],
) -> tuple[PodKey, ...]:
    """Pods that have GPUs now which they neither held `before` nor were handed over since: somebody else gave them. Pure.

    That another pod held a GPU `before` does not mean that it was handed over here: that pod may have ended since.
    """
    living = {pod.key for pod in pods if not pod.finished}
    held, handed_over = tuple(before), frozenset(uuid for entry in handed for uuid in entry.gpus)

    def served(key: PodKey) -> frozenset[GpuUuid]:
        return handed_over.union(one.uuid for one in held if (one.namespace, one.pod) in (key, NOBODY))

    return tuple(sorted(key for key, gpus in taken.items() if key in living and not gpus <= served(key)))


class RivalSockets:
    """Looks for a socket of NVIDIA's device plugin, where kompakt serves its resource.

    Its names are nvidia-<resource>.sock, in later versions with something behind the resource (NVIDIA/k8s-device-plugin,
    internal/plugin/server.go, getPluginSocketPath).
    """

    def __init__(self, kubelet_dir: Path, resource: str) -> None:
        vendor, _, name = resource.partition("/")
        self._folder, self._resource = kubelet_dir / SOCKETS, resource
        self._pattern = "" if resource == contract.RESOURCE else f"{vendor.partition('.')[0]}-{name}*.sock"

    def __call__(self) -> str:
        found = sorted(self._folder.glob(self._pattern)) if self._pattern else []
        living = (path.name for path in found if path.is_socket() and not is_dead(path))
        name = next(living, "")
        return f"{self._resource} too (it listens on {name} in kubelet's folder)" if name else ""
