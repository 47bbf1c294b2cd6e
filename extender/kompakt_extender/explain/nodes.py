"""Nodes as the explain API shows them."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kompakt_core.ids import GpuUuid, NodeName, PodUid, indices_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.choose import choose
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.fit import node_rejection
from kompakt_core.placement.model import Choice, GpuRequest, NodeState, PlacementPolicy, Reason, Rejection, Worker
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender.explain.models import (
    BestLeft,
    GpuOfNode,
    HeldBy,
    Holder,
    LinkOfNode,
    NodeAnswer,
    NodePage,
    NodeSummary,
    Why,
)
from kompakt_extender.explain.survey import unhurried
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.node_rules import FIELD_PREFIX
from kompakt_extender.node_state import Claim, ClaimSource
from kompakt_extender.views import PodView

NOBODY: Final[Mapping[NodeName, list[HeldBy]]] = {}
SIZES: Final = (2, 4, 8)
_RING: Final = GpuRequest(Pattern.RING, PlacementPolicy.BEST)
_ONE_GPU: Final = Worker(index=0, pod="", uid=PodUid(""), gpus=1)
_HOW: Final[Mapping[ClaimSource, str]] = {
    ClaimSource.ANNOTATION: "Planned",
    ClaimSource.PLAN: "Planned",
    ClaimSource.BIND: "Binding",
}
_STRONGEST: Final = (ClaimSource.BIND, ClaimSource.PLAN, ClaimSource.ANNOTATION)


def best_ring(graph: LinkGraph, free: int, size: int) -> int:
    """The highest value (MB/s) that a Ring of `size` GPUs would get within `free` under policy Best; 0 where fewer are free,
    and on machines on which patterns are not matched.
    """
    found = choose(graph, free, size, _RING)
    return found.value if isinstance(found, Choice) else 0


def summary(state: NodeState) -> NodeSummary:
    """A node in the list."""
    why, graph = why_not(state), state.graph
    return NodeSummary(
        name=state.name,
        gpus=graph.size if graph else 0,
        free=[int(index) for index in indices_of(state.free)],
        free_mask=state.free,
        usable=not why,
        why_not=why,
        best_left=best_left(graph, state.free) if graph else [],
    )


def best_left(graph: LinkGraph, free: int) -> list[BestLeft]:
    return [
        BestLeft(gpus=size, value=best_ring(graph, free, size), empty=best_ring(graph, graph.all_gpus, size))
        for size in SIZES
        if size <= graph.size
    ]


def why_not(state: NodeState) -> list[Why]:
    """Why a pod that asks for one GPU and tolerates nothing gets none here; empty when it would. First what Kubernetes says."""
    found = node_rejection(state, _ONE_GPU, None)
    rejections = [found] if found else []
    problem = state.problem or (Reason.NO_TOPOLOGY if state.graph is None else None)
    if problem is not None and (found is None or found.reason is not problem):
        rejections.append(Rejection(problem, state.name))
    return [Why(reason=rejection.reason.value, message=sentence(rejection)) for rejection in rejections]


def names_after(states: Iterable[NodeName], after: str) -> list[NodeName]:
    """The names that come after `after`, in order."""
    names = sorted(states)
    return names[bisect_right(names, after) :]


def page(
    states: Mapping[NodeName, NodeState], after: str, limit: int, held: Mapping[NodeName, list[HeldBy]] = NOBODY
) -> NodePage:
    """The nodes whose names come after `after`, at most `limit`. `held`: pods that have their GPUs, where that was asked."""
    names = names_after(states, after)
    chosen = names[:limit]
    items = [summary(states[name]).model_copy(update={"held_by": held.get(name, [])}) for name in unhurried(chosen)]
    return NodePage(items=items, total=len(states), next=chosen[-1] if len(names) > limit and chosen else None)


def held_by(ledger: GpuLedger, node: NodeName) -> list[HeldBy]:
    """The pods that have GPUs of a node, those with most first; reads the ledger, so it runs on the loop."""
    each = [one for of_gpu in holders_of(users_of(ledger, node)).values() for one in of_gpu]
    holders, count = {one.uid: one for one in each}, Counter(one.uid for one in each)
    return [HeldBy(**vars(holders[uid]), gpus=gpus) for uid, gpus in count.most_common()]


def detail(ledger: GpuLedger, state: NodeState) -> NodeAnswer:
    """All that is known of one node; reads the ledger, so it runs on the loop."""
    holders = holders_of(users_of(ledger, state.name))
    graph = state.graph
    return NodeAnswer(
        **vars(summary(state)),
        gpu_list=_gpus(graph, state.free, holders) if graph else [],
        links=_links(graph) if graph else [],
        labels={key: value for key, value in state.labels.items() if not key.startswith(FIELD_PREFIX)},
        free_cpu_millis=max(state.free_cpu_millis, 0),
        free_memory_bytes=max(state.free_memory_bytes, 0),
        free_pods=max(state.free_pods, 0),
    )


@dataclass(frozen=True, slots=True)
class GpuUsers:
    """Who may have GPUs of a node, as the ledger has it: read on the loop, and put into words elsewhere."""

    bound: tuple[PodView, ...]
    claims: tuple[tuple[ClaimSource, tuple[Claim, ...]], ...]
    reported: tuple[tuple[GpuUuid, str, PodView | None], ...]


def users_of(ledger: GpuLedger, node: NodeName) -> GpuUsers:
    """Quick; on the loop."""
    topology = ledger.topologies.get(node)
    return GpuUsers(
        tuple(ledger.bound_to(node).values()),
        tuple((source, claims) for source in _STRONGEST if (claims := ledger.claims_on(node, source))),
        tuple((gpu, uid, ledger.pods.get(uid)) for gpu, uid in (topology.held if topology else ())),
    )


def holders_of(users: GpuUsers) -> dict[GpuUuid, list[Holder]]:
    """Who has which GPU. A pod is named once for a GPU, by the strongest word: bound before binding before planned."""
    found: dict[GpuUuid, dict[str, Holder]] = {}

    def add(pod: PodView | None, uid: str, how: str, gpus: Iterable[GpuUuid]) -> None:
        holder = Holder(namespace=pod.namespace if pod else "", name=pod.name if pod else "", uid=uid, how=how)
        for gpu in gpus:
            found.setdefault(gpu, {}).setdefault(uid, holder)

    for pod in users.bound:
        add(pod, pod.uid, "Bound", pod.written_gpus)
    for source, claims in users.claims:
        for claim in claims:
            add(claim.pod, claim.pod.uid, _HOW[source], claim.gpus)
    for gpu, uid, reported in users.reported:
        add(reported, uid, "Reported", [gpu])
    return {gpu: list(holders.values()) for gpu, holders in found.items()}


def _gpus(graph: LinkGraph, free: int, holders: Mapping[GpuUuid, list[Holder]]) -> list[GpuOfNode]:
    return [
        GpuOfNode(
            index=gpu.index,
            uuid=gpu.uuid,
            model=gpu.model,
            numa_node=gpu.numa_node,
            health=gpu.health,
            free=bool(free >> gpu.index & 1),
            holders=holders.get(gpu.uuid, []),
        )
        for gpu in graph.gpus
    ]


def _links(graph: LinkGraph) -> list[LinkOfNode]:
    return [
        LinkOfNode(a=link.a, b=link.b, kind=link.kind.value, lanes=link.lanes, megabytes_per_second=link.megabytes_per_second)
        for link in graph.links
    ]
