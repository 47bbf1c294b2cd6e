"""From a plan to the record of it, and from a record to the planner's write of a job's status."""

from datetime import datetime
from typing import Any

from kompakt_core import contract
from kompakt_core.contract import scheduling_record, timestamps
from kompakt_core.contract.conditions import Condition, ConditionReason, Type, stamped
from kompakt_core.contract.plan_record import PlanRecord, SeatRecord, digest_of
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import GpuUuid
from kompakt_core.placement.model import Plan, Snapshot
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender.views import JobView


def plan_record(plan: Plan, snapshot: Snapshot, now: datetime) -> PlanRecord:
    """A plan with the GPUs' UUIDs beside their indices."""
    gpus = {seat.node: uuids_of(snapshot.nodes[seat.node].graph) for seat in plan.seats if seat.gpus}
    seats = tuple(
        SeatRecord(
            seat.worker.uid, seat.node, tuple(gpus[seat.node][i] for i in seat.gpus), tuple(seat.gpus), seat.value, seat.rank
        )
        for seat in sorted(plan.seats, key=lambda seat: seat.rank)
    )
    return PlanRecord(plan.level.value, plan.value, plan.ideal, timestamps.encode(now), seats, digest_of(gpus))


def uuids_of(graph: LinkGraph | None) -> tuple[GpuUuid, ...]:
    """By index."""
    return () if graph is None else tuple(gpu.uuid for gpu in graph.gpus)


def status_apply(job: JobView, record: Record, now: datetime) -> dict[str, Any]:
    """The body of the server-side apply: always every field that the planner owns, guarded by resourceVersion."""
    placed = "True" if record.state is State.RELEASED else "False"
    before: dict[str, Condition] = {}
    if job.placed is not None:
        before[Type.PLACED] = Condition(Type.PLACED, job.placed[0], "", since=job.placed[1])
    conditions = [Condition(Type.PLACED, placed, record.reason, record.message)]
    if (asked := record.preempt) is not None:
        since = asked.requested_at
        conditions.append(Condition(Type.PREEMPTION_REQUESTED, "True", ConditionReason.HIGHER_PRIORITY, asked.message, since))
    return {
        "apiVersion": contract.API_VERSION,
        "kind": job.kind.value,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.written_uid,
            "resourceVersion": job.resource_version,
        },
        "status": {
            "scheduling": scheduling_record.encode(record),
            "conditions": stamped(conditions, before, timestamps.encode(now), job.generation),
        },
    }
