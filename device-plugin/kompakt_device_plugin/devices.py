"""The list of devices that kubelet is told, and who holds them: shared by the threads of one plugin process."""

import threading
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY, LinkGraph


@dataclass(frozen=True, slots=True)
class Offered:
    """What is offered: the GPUs of `graph`, or none where it is None. `version` rises with every change, `lapses` with every one
    after which nothing is offered.
    """

    graph: LinkGraph | None = None
    version: int = 0
    lapses: int = 0


def marked_unhealthy(graph: LinkGraph, well: Container[GpuUuid]) -> LinkGraph:
    """The graph with every GPU that is not among `well` marked unhealthy."""
    return replace(graph, gpus=tuple(gpu if gpu.uuid in well else replace(gpu, health=UNHEALTHY) for gpu in graph.gpus))


class Devices:
    """Published by the thread that reports to the cluster, read by kubelet's calls."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._offered = Offered()
        self._holding: frozenset[PodUid] = frozenset()
        self._asked: frozenset[PodUid] = frozenset()
        self._orphaned: frozenset[GpuUuid] = frozenset()
        self._held: tuple[GpuHolder, ...] = ()
        self._known: frozenset[GpuUuid] = frozenset()  # ever offered, or said to be strange

    def publish(self, graph: LinkGraph | None) -> None:
        """Offers the GPUs of this graph from now on. Call it only after the graph stands in the cluster."""
        with self._changed:
            self._known |= {gpu.uuid for gpu in graph.gpus} if graph else set()
            if self._offered.version == 0 or graph != self._offered.graph:
                before = self._offered
                self._offered = Offered(graph, before.version + 1, before.lapses + (graph is None))
                self._changed.notify_all()

    def withdraw(self, wanted: LinkGraph | None) -> None:
        """Takes back at once what is offered but not `wanted` (well there); what is new must wait for `publish`.

        Nothing is said before there was something to offer: the node then has no such resource at all.
        """
        with self._changed:
            old = self._offered.graph
        if old is None:
            return
        well = {gpu.uuid for gpu in wanted.gpus if gpu.health == HEALTHY} if wanted else set()
        if wanted is None or any(gpu.uuid not in well for gpu in old.gpus if gpu.health == HEALTHY):
            self.publish(marked_unhealthy(old, well) if wanted else None)

    @property
    def offered(self) -> Offered:
        """What is offered now; version 0 means that nothing has been said yet."""
        return self._offered

    def strangers(self, gpus: Iterable[GpuUuid]) -> frozenset[GpuUuid]:
        """Those of these ids of kubelet's that were never offered, each only once."""
        with self._changed:
            strange = frozenset(gpus) - self._known
            self._known |= strange
        return strange

    def place(self, gpu: GpuUuid) -> int:
        """The index of a GPU on the node; unknown ones come last."""
        graph = self._offered.graph
        return next((one.index for one in graph.gpus if one.uuid == gpu), graph.size) if graph else 0

    def wait(self, version: int, listening: Callable[[], bool]) -> Offered:
        """What is offered, as soon as it is no longer `version`, or nobody is `listening` any more (call wake then)."""
        with self._changed:
            self._changed.wait_for(lambda: self._offered.version != version or not listening())
            return self._offered

    def wake(self) -> None:
        """Lets everybody who waits look again."""
        with self._changed:
            self._changed.notify_all()

    @property
    def holding(self) -> frozenset[PodUid]:
        """Pods that have their GPUs, or asked this kubelet for them just now."""
        return self._holding | self._asked

    @property
    def orphaned(self) -> frozenset[GpuUuid]:
        """GPUs with processes of pods that nobody knows any more."""
        return self._orphaned

    def set_orphaned(self, gpus: Iterable[GpuUuid]) -> None:
        """These GPUs must not be handed over yet, although kubelet takes them for free."""
        self._orphaned = frozenset(gpus)

    @property
    def held(self) -> tuple[GpuHolder, ...]:
        """What pods held when it was last looked at."""
        return self._held

    def keep(self, held: tuple[GpuHolder, ...]) -> None:
        """This is what pods hold."""
        self._held = held

    def asked(self, pod: PodUid) -> None:
        """kubelet has given this pod what is written on it."""
        with self._changed:
            self._asked |= {pod}

    def kubelet_came(self) -> None:
        """Whoever asked an earlier kubelet may be admitted by the new one once more."""
        with self._changed:
            self._asked = frozenset()

    def lost(self, pods: Iterable[PodUid]) -> None:
        """kubelet offers again what was handed over to these; whoever asked it stays remembered: it admits no pod twice."""
        with self._changed:
            self._holding -= frozenset(pods)

    def hold(self, holding: Iterable[PodUid], known: Iterable[PodUid]) -> None:
        """These hold GPUs for certain; of those that asked, only pods still `known` to the cluster stay remembered."""
        with self._changed:
            self._holding = frozenset(holding)
            self._asked &= frozenset(known)
