"""Which GPUs kubelet is told to take. Pure: pods and an offer in, a set out; there is always an answer.

kubelet never says which pod it is admitting. The pod is found by what is written on it: the oldest one that has
the asked size, whose GPUs are all among those offered, and that holds none yet.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from kompakt_core.ids import GpuUuid, PodUid, indices_of, mask_of
from kompakt_core.patterns.names import NAMED, Pattern
from kompakt_core.placement.choose import Choice, choose
from kompakt_core.placement.model import GpuRequest
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.pods import NodePod


@dataclass(frozen=True, slots=True)
class OfferedDevices:
    """One container request of kubelet: choose `size` of `offered`, all of `must` among them."""

    offered: tuple[GpuUuid, ...]
    must: tuple[GpuUuid, ...]
    size: int


def admitted(pods: Iterable[NodePod], offer: OfferedDevices, holding: Collection[PodUid]) -> NodePod | None:
    """The pod that kubelet is admitting, judged by the GPUs written on the pods (oldest first); None where no pod matches.

    `holding` are pods known to have their GPUs: what they gave back may be offered again, but they do not ask twice.
    """
    fitting = [pod for pod in _waiting(pods, holding) if _matches(pod, offer)]
    return min(fitting, key=lambda pod: pod.deleting, default=None)


def best_free(
    pods: Sequence[NodePod],
    offer: OfferedDevices,
    holding: Collection[PodUid],
    graph: LinkGraph | None,
    avoid: Collection[GpuUuid] = (),
) -> tuple[GpuUuid, ...]:
    """The answer for a pod with no usable set written on it: the best free set that leaves alone what others were promised.

    GPUs to `avoid` are left alone like those. What the pod demands (a required link, one NUMA node) goes before its pattern,
    and before a promise to a pod that demands nothing; where no set that is offered has it, any set is answered.
    """
    waiting = list(_waiting(pods, holding))
    gpu_request = next((pod.gpu_request for pod in waiting if pod.size == offer.size and not _matches(pod, offer)), GpuRequest())
    promised = [pod for pod in waiting if len(pod.gpus) == pod.size and set(offer.offered).issuperset(pod.gpus)]
    spare = _without(offer, (pod.gpus for pod in promised), avoid)
    yielding = _without(offer, (pod.gpus for pod in promised if _demands(pod.gpu_request)), avoid)
    for pool, how in _attempts(gpu_request, spare, yielding, offer.offered):
        if chosen := _choose(graph, pool, offer, how):
            return chosen
    return first_offered(offer, spare)


def admit(
    pods: Sequence[NodePod], offer: OfferedDevices, holding: Collection[PodUid], graph: LinkGraph | None
) -> tuple[GpuUuid, ...]:
    """The set written on the pod being admitted, else the best free one: what kubelet ends up with when it asks us."""
    pod = admitted(pods, offer, holding)
    return pod.gpus if pod else best_free(pods, offer, holding, graph)


def warm(graph: LinkGraph) -> None:
    """Answers for every named pattern once, over all links and over NVLink alone: what has to be worked out for a machine (up
    to half a second for 16 GPUs with links) is worked out before kubelet asks.
    """
    for pattern, link in product(NAMED, ("Any", "NVLink")):
        choose(graph, (1 << graph.size) - 1, min(2, graph.size), GpuRequest(pattern=pattern, required_link=link))


def first_offered(offer: OfferedDevices, spare: Sequence[GpuUuid] = ()) -> tuple[GpuUuid, ...]:
    """No graph to go by: what kubelet insists on, then `spare`, then any others, in the order offered."""
    return tuple(dict.fromkeys([*offer.must, *spare, *offer.offered]))[: offer.size]


def valid(answer: Sequence[GpuUuid], offer: OfferedDevices) -> bool:
    """Whether kubelet will take exactly this: right size, no repetition, only offered ids, all that it insists on."""
    given = set(answer)
    return len(answer) == len(given) == offer.size and given <= set(offer.offered) and given >= set(offer.must)


def _waiting(pods: Iterable[NodePod], holding: Collection[PodUid]) -> Iterable[NodePod]:
    return (pod for pod in pods if not pod.finished and pod.uid not in holding)


def _matches(pod: NodePod, offer: OfferedDevices) -> bool:
    return pod.size == offer.size and valid(pod.gpus, offer)


def _demands(gpu_request: GpuRequest) -> bool:
    """Whether the request forbids sets, rather than only to rank them."""
    return gpu_request.required_link != "Any" or gpu_request.same_numa_node


def _without(offer: OfferedDevices, promises: Iterable[Sequence[GpuUuid]], avoid: Collection[GpuUuid]) -> list[GpuUuid]:
    """What is offered without what others were promised; what kubelet insists on stays."""
    left_alone = {uuid for gpus in promises for uuid in gpus}.union(avoid)
    return [uuid for uuid in offer.offered if uuid not in left_alone or uuid in offer.must]


def _attempts(
    gpu_request: GpuRequest, spare: Sequence[GpuUuid], yielding: Sequence[GpuUuid], offered: Sequence[GpuUuid]
) -> Iterator[tuple[Sequence[GpuUuid], GpuRequest]]:
    """From which GPUs, and how, a set is sought one after the other."""
    demanding = _demands(gpu_request)
    hows = (gpu_request, replace(gpu_request, pattern=Pattern.NONE, edges=())) if demanding else (gpu_request,)
    yield from ((pool, how) for how in hows for pool in ((spare, yielding) if demanding else (spare,)))
    yield spare, GpuRequest()
    yield from ((offered, how) for how in (*hows, GpuRequest()))


def _choose(
    graph: LinkGraph | None, pool: Sequence[GpuUuid], offer: OfferedDevices, gpu_request: GpuRequest
) -> tuple[GpuUuid, ...] | None:
    """A set by the request of those in `pool` that the graph knows; None where they do not suffice."""
    place = {gpu.uuid: gpu.index for gpu in graph.gpus} if graph else {}
    known: list[int] = [place[uuid] for uuid in pool if uuid in place]
    if graph is None or not 0 < offer.size <= len(known) or not all(uuid in place for uuid in offer.must):
        return None
    must = mask_of([place[uuid] for uuid in offer.must])
    choice = choose(graph, mask_of(known), offer.size, gpu_request, must_include=must)
    if not isinstance(choice, Choice):
        return None
    answer = tuple(graph.gpus[index].uuid for index in indices_of(choice.mask))
    return answer if valid(answer, offer) else None
