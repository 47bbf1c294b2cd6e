"""What the planner asks core about one gang, as values: a worker thread plans it while the loop goes on changing things.

So an answer is always one about the past: before it counts, `same_gang`, `same_machines` and `stands` compare it with now.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kompakt_core.contract.plan_record import SeatRecord
from kompakt_core.contract.scheduling_record import Record
from kompakt_core.ids import GpuMask, NodeName, mask_of
from kompakt_core.placement.fit import node_rejection
from kompakt_core.placement.model import Gang, NodeState, Plan, Seat, Snapshot
from kompakt_core.policy.place_or_wait import DelayConfig
from kompakt_extender.gang_state import SeenVersions
from kompakt_extender.gangs import plannable, replannable
from kompakt_extender.views import JobView, PodView


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """Where would this gang go, and would it? `mark`: equal where nothing that counts has changed since the last attempt.

    `since`, `asked_at`: seconds since the epoch; when the gang could first have been placed (now, if never yet), and now.
    `overtaken`: as in core's Waiting; 0 while counts are reserved for another gang, since that is done for one at a time.
    `asks_with`: it may have what is reserved for gangs below this priority. `priority`: with which it may end others, None =
    it may not. `sees_as_all`: nothing is reserved for it, nor for gangs that it may have it from. `beside`: the places of pods
    that have theirs, where `pods` are newcomers of their gang.
    """

    job: JobView
    record: Record
    pods: tuple[PodView, ...]
    gang: Gang
    snapshot: Snapshot
    mark: SeenVersions
    patience: DelayConfig
    since: float
    asked_at: float
    overtaken: int
    asks_with: int
    priority: int | None
    sees_as_all: bool
    beside: tuple[SeatRecord, ...] = ()

    @property
    def nodes_beside(self) -> frozenset[NodeName]:
        """Where those are that its pods join."""
        return frozenset(seat.node for seat in self.beside)


def same_gang(then: PlanningRequest, now: PlanningRequest) -> bool:
    """Whether the gang is what it was: the same pods by uid, with the same demands, beside the same others."""
    return now.gang == then.gang and now.beside == then.beside


def same_machines(then: PlanningRequest, now: PlanningRequest) -> bool:
    """Whether the cluster still consists of the same nodes with the same link graphs."""
    before, after = then.snapshot.nodes, now.snapshot.nodes
    return before.keys() == after.keys() and all(state.graph is after[name].graph for name, state in before.items())


def stands(plan: Plan, then: PlanningRequest, now: PlanningRequest) -> bool:
    """Whether every seat of a plan can still be taken, all of them together, on the nodes as they are now."""
    left: dict[NodeName, NodeState] = {}
    for seat in plan.seats:
        state = left.get(seat.node) or now.snapshot.nodes.get(seat.node)
        if state is None or not _same_machine(state, then.snapshot.nodes[seat.node]):
            return False
        if mask_of(seat.gpus) & ~state.free or node_rejection(state, seat.worker, now.gang) is not None:
            return False
        left[seat.node] = _seated(state, seat)
    return True


def _same_machine(now: NodeState, then: NodeState) -> bool:
    """The same GPUs behind the same indices, and still in the rack that the plan's level was read from."""
    return now is then or (now.graph == then.graph and now.labels == then.labels)


def _seated(state: NodeState, seat: Seat) -> NodeState:
    return replace(
        state,
        taken=GpuMask(state.taken | mask_of(seat.gpus)),
        free_cpu_millis=state.free_cpu_millis - seat.worker.cpu_millis,
        free_memory_bytes=state.free_memory_bytes - seat.worker.memory_bytes,
        free_pods=state.free_pods - 1,
    )


def can_be_planned(job: JobView, record: Record, pods: Sequence[PodView]) -> bool:
    """Whether the gang can be planned (still, when others were planned meanwhile)."""
    gone = job.suspended or job.finished or record.attempt != job.attempt
    return not gone and (plannable(job, pods) or replannable(job, pods))
