"""How long GPUs stay reserved by count: as long as more of them become free now and then. Pure.

Nobody knows when a job ends, and some never do. So what is reserved falls when nothing of what it still waits for has become
free for so many seconds: else one job without end, and one gang behind it, would keep a machine idle for ever.
"""

from collections.abc import Mapping

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState, Snapshot
from kompakt_core.policy.place_or_wait import gang_gpus, unhealthy_gpus
from kompakt_extender.gang_state import CountedReservation
from kompakt_extender.planner.planning_request import PlanningRequest

Counts = Mapping[NodeName, int]


def lacking(counts: Counts, snapshot: Snapshot) -> int:
    """How many of the reserved GPUs are not free for their gang now."""
    return sum(max(0, number - snapshot.nodes[node].free.bit_count()) for node, number in counts.items())


def can_come(counts: Counts, request: PlanningRequest) -> bool:
    """Whether these counts are what the gang needs, and its nodes could still give that many."""
    nodes = request.snapshot.nodes
    serves = (node in nodes and _can_give(nodes[node], number) for node, number in counts.items())
    return sum(counts.values()) == gang_gpus(request.gang) and all(serves)


def _can_give(state: NodeState, number: int) -> bool:
    healthy = 0 if state.graph is None else state.graph.size - unhealthy_gpus(state).bit_count()
    return state.ready and not state.unschedulable and 0 < number <= healthy


def next_reservation(
    before: CountedReservation | None, counts: Counts, request: PlanningRequest, written: float | None, seconds: float
) -> CountedReservation:
    """The reservation as it stands now: fewer taken than ever, or another place, give it as long again.

    A GPU that becomes free, is taken and becomes free again does not. `before`: None where this leader had none for the gang;
    `written`: until when an earlier leader gave it.
    """
    now, fewest = request.asked_at, lacking(counts, request.snapshot)
    if before is not None and before.counts == counts and fewest >= before.fewest:
        return before
    until = now + seconds
    return CountedReservation(counts, fewest, until if before is not None or written is None else min(written, until))
