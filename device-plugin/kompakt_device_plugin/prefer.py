"""Which GPUs kubelet is told to take. Pure: pods and an offer in, a set out; there is always an answer.

kubelet never says which pod it is admitting. The pod is found by what is written on it: the oldest one that has
the asked size, whose GPUs are all among those offered, and that holds none yet.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kompakt_core.ids import GpuUuid, PodUid, indices_of, mask_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.choose import Choice, choose
from kompakt_core.placement.model import Wish
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.pods import NodePod


@dataclass(frozen=True, slots=True)
class Offer:
    """One container request of kubelet: choose `size` of `offered`, all of `must` among them."""

    offered: tuple[GpuUuid, ...]
    must: tuple[GpuUuid, ...]
    size: int


def admitted(pods: Iterable[NodePod], offer: Offer, holding: Collection[PodUid]) -> NodePod | None:
    """The pod that kubelet is admitting, judged by the GPUs written on the pods (oldest first); None where no pod matches.

    `holding` are pods known to have their GPUs: what they gave back may be offered again, but they do not ask twice.
    """
    fitting = [pod for pod in _waiting(pods, holding) if _matches(pod, offer)]
    return min(fitting, key=lambda pod: pod.deleting, default=None)


def best_free(
    pods: Sequence[NodePod],
    offer: Offer,
    holding: Collection[PodUid],
    graph: LinkGraph | None,
    avoid: Collection[GpuUuid] = (),
) -> tuple[GpuUuid, ...]:
    """The answer for a pod with no usable set written on it: the best free set that leaves alone what others were promised.

    GPUs to `avoid` are left alone like those.
    """
    waiting = list(_waiting(pods, holding))
    offered = set(offer.offered)
    sound = (pod.gpus for pod in waiting if len(pod.gpus) == pod.size and offered.issuperset(pod.gpus))
    promised = {uuid for gpus in sound for uuid in gpus}.union(avoid)
    wish = next((pod.wish for pod in waiting if pod.size == offer.size and not _matches(pod, offer)), Wish())
    spare = [uuid for uuid in offer.offered if uuid not in promised or uuid in offer.must]
    pools = (spare, offer.offered) if len(spare) < len(offer.offered) else (offer.offered,)
    for pool, how in ((pool, how) for pool in pools for how in (wish, Wish())):
        if chosen := _choose(graph, pool, offer, how):
            return chosen
    return first_offered(offer, spare)


def admit(pods: Sequence[NodePod], offer: Offer, holding: Collection[PodUid], graph: LinkGraph | None) -> tuple[GpuUuid, ...]:
    """The set written on the pod being admitted, else the best free one: what kubelet ends up with when it asks us."""
    pod = admitted(pods, offer, holding)
    return pod.gpus if pod else best_free(pods, offer, holding, graph)


def warm(graph: LinkGraph) -> None:
    """Answers for every named pattern once: what has to be worked out for a machine (up to half a second for 16 GPUs with
    links) is worked out before kubelet asks.
    """
    for pattern in Pattern:
        if pattern is not Pattern.CUSTOM:
            choose(graph, (1 << graph.size) - 1, min(2, graph.size), Wish(pattern=pattern))


def first_offered(offer: Offer, spare: Sequence[GpuUuid] = ()) -> tuple[GpuUuid, ...]:
    """No graph to go by: what kubelet insists on, then `spare`, then any others, in the order offered."""
    return tuple(dict.fromkeys([*offer.must, *spare, *offer.offered]))[: offer.size]


def valid(answer: Sequence[GpuUuid], offer: Offer) -> bool:
    """Whether kubelet will take exactly this: right size, no repetition, only offered ids, all that it insists on."""
    given = set(answer)
    return len(answer) == len(given) == offer.size and given <= set(offer.offered) and given >= set(offer.must)


def _waiting(pods: Iterable[NodePod], holding: Collection[PodUid]) -> Iterable[NodePod]:
    return (pod for pod in pods if not pod.finished and pod.uid not in holding)


def _matches(pod: NodePod, offer: Offer) -> bool:
    return pod.size == offer.size and valid(pod.gpus, offer)


def _choose(graph: LinkGraph | None, pool: Sequence[GpuUuid], offer: Offer, wish: Wish) -> tuple[GpuUuid, ...] | None:
    """A set by the wish of those in `pool` that the graph knows; None where they do not suffice."""
    place = {gpu.uuid: gpu.index for gpu in graph.gpus} if graph else {}
    known: list[int] = [place[uuid] for uuid in pool if uuid in place]
    if graph is None or not 0 < offer.size <= len(known) or not all(uuid in place for uuid in offer.must):
        return None
    must = mask_of([place[uuid] for uuid in offer.must])
    choice = choose(graph, mask_of(known), offer.size, wish, must_include=must)
    if not isinstance(choice, Choice):
        return None
    answer = tuple(graph.gpus[index].uuid for index in indices_of(choice.mask))
    return answer if valid(answer, offer) else None
