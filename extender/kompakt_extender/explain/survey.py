"""What every node says to one request, by the same rules as filter and prioritize. Pure, apart from giving way to the verbs."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from kompakt_core.patterns.edges import text_of
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.fit import node_rejection
from kompakt_core.placement.model import Gang, GpuRequest, Level, NodeState, Reason, Rejection, Worker
from kompakt_core.placement.seating import LEVEL_LABELS
from kompakt_extender.decide import Grant, Request, grant, rank
from kompakt_extender.explain.models import EXAMPLES, ROOMS, Asked, NodeRejections, NodeRoom
from kompakt_extender.rejections import message_of

Item = TypeVar("Item")
# What nodes lack, each another amount of it; other reasons are told once for all their nodes.
_LACKS: Final = frozenset(
    {
        Reason.CPU,
        Reason.MEMORY,
        Reason.PODS,
        Reason.NOT_ENOUGH_GPUS,
        Reason.RESERVED,
        Reason.LINK_TOO_WEAK,
        Reason.NUMA_SPLIT,
        Reason.PARTITION_SPLIT,
    }
)
_STRETCH: Final = 64
_PAUSE_SECONDS: Final = 0.0001


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """A node that can take the request, with the GPUs it would give; a larger rank is better."""

    state: NodeState
    grant: Grant
    rank: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """`found`: best first, equals by name. `rejected`: the other nodes by name, each with its reason."""

    found: tuple[NodeFinding, ...]
    rejected: tuple[tuple[NodeState, Rejection], ...]

    def rejections(self) -> list[NodeRejections]:
        """The reasons, the most frequent first, with a few names each."""
        refused: dict[tuple[str, str], list[str]] = {}
        for state, why in self.rejected:
            refused.setdefault((why.reason.value, message_of(why)), []).append(state.name)
        ordered = sorted(refused.items(), key=lambda one: (-len(one[1]), one[0]))
        return [
            NodeRejections(reason=code, message=text, nodes=len(names), examples=names[:EXAMPLES])
            for (code, text), names in ordered
        ]

    def rooms(self, takes: Callable[[NodeState], int] = lambda _: 1) -> list[NodeRoom]:
        """Nodes that Kubernetes allows: those that take most first, then those with most free GPUs.

        `takes`: how many workers a node takes that takes any.
        """
        rooms = [room_of(one.state, takes(one.state)) for one in self.found[:ROOMS]]
        rooms.sort(key=lambda room: -room.takes)
        nearest = sorted((one for one in self.rejected if one[1].reason in _LACKS), key=lambda one: -one[0].free.bit_count())
        return rooms + [room_of(state, 0, sentence(why)) for state, why in nearest[: ROOMS - len(rooms)]]


def room_of(state: NodeState, takes: int, message: str = "") -> NodeRoom:
    """What a node has, as the API says it."""
    return NodeRoom(
        node=state.name,
        rack=state.labels.get(LEVEL_LABELS[Level.RACK], ""),
        block=state.labels.get(LEVEL_LABELS[Level.BLOCK], ""),
        free=state.free.bit_count(),
        takes=takes,
        message=message,
    )


def unhurried(items: Iterable[Item], stretch: int = _STRETCH) -> Iterator[Item]:
    """The items, with short pauses: Python runs one thread at a time, and kube-scheduler waits for the other one."""
    for number, item in enumerate(items, 1):
        yield item
        if number % stretch == 0:
            time.sleep(_PAUSE_SECONDS)


def survey(states: Iterable[NodeState], worker: Worker, gpu_request: GpuRequest, gang: Gang | None = None) -> Survey:
    """Ask every node. `gang` adds the nodes that are left out for it."""
    request = Request(worker.gpus, gpu_request)
    found: list[NodeFinding] = []
    rejected: list[tuple[NodeState, Rejection]] = []
    for state in unhurried(sorted(states, key=lambda state: state.name)):
        answer = _ask(state, worker, request, gang)
        if isinstance(answer, Grant):
            found.append(NodeFinding(state, answer, rank(request, state, answer)))
        else:
            rejected.append((state, answer))
    found.sort(key=lambda one: one.rank, reverse=True)  # stable: equals stay ordered by name
    return Survey(tuple(found), tuple(rejected))


def _ask(state: NodeState, worker: Worker, request: Request, gang: Gang | None) -> Grant | Rejection:
    rejection = node_rejection(state, worker, gang)
    return grant(request, state) if rejection is None else rejection


def asked_of(gpus: int, gpu_request: GpuRequest) -> Asked:
    """The request in the words of the API."""
    return Asked(
        gpus=gpus,
        pattern=gpu_request.pattern.value,
        edges=text_of(gpu_request.edges) if gpu_request.edges else None,
        policy=gpu_request.policy.value,
        sensitive=gpu_request.sensitive,
        required_link=gpu_request.required_link,
        same_numa_node=gpu_request.same_numa_node,
    )
