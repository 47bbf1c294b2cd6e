"""From TrainingJobs to what the planner keeps of them."""

from collections.abc import Mapping, Sequence

import msgspec

from kompakt_core import contract
from kompakt_core.contract import timestamps
from kompakt_core.contract.conditions import ConditionReason, Type
from kompakt_core.job.limited import DEFAULT_GRACE_SECONDS, JobDemand
from kompakt_core.job.model import MAX_WAIT_SECONDS, Consolidation, ConsolidationMode, EdgeScope, Preemption
from kompakt_core.placement.model import Level
from kompakt_core.profile.sensitivity import MOST
from kompakt_extender.objects import (
    CommunicationSpec,
    ConditionObject,
    ConsolidationSpec,
    ExpectedPodsObject,
    JobObject,
    JobSpec,
    RunPolicySpec,
    TemplateSpec,
)
from kompakt_extender.project import expected_view
from kompakt_extender.views import ExpectedRole, JobView

_JOB = msgspec.json.Decoder(JobObject)
_EXPECTED = msgspec.json.Decoder(ExpectedPodsObject | None)


def read_job(raw: bytes, resource: str = contract.RESOURCE) -> JobView:
    """A TrainingJob's JSON; its expected pods ask for GPUs by the name `resource`."""
    return job_view(_JOB.decode(raw), resource)


def job_view(job: JobObject, resource: str = contract.RESOURCE) -> JobView:
    """The projection of a TrainingJob."""
    conditions = {c.type: c for c in job.status.conditions or ()}
    placed, running = conditions.get(Type.PLACED), conditions.get(Type.RUNNING)
    placement = job.spec.placement
    consolidation = _consolidation(placement.consolidation if placement else None)
    meta = job.metadata
    return JobView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        generation=meta.generation,
        workers=sum(role.replicas for role in job.spec.roles),
        attempt=job.status.attempt or 0,
        suspended=bool(job.spec.suspend),
        finished=(ended := _ended(conditions)) is not None,
        ended=ended,
        queued=_told(conditions.get(Type.RECONCILING), ConditionReason.WAITING_FOR_QUOTA),
        nodes_asked=_told(conditions.get(Type.RECONCILING), ConditionReason.WAITING_FOR_NODES),
        ours=(job.spec.managed_by or contract.MANAGED_BY) == contract.MANAGED_BY,
        required_level=Level(placement.required_level) if placement and placement.required_level else Level.CLUSTER,
        same_numa_node=bool(placement and placement.same_numa_node),
        consolidation=consolidation,
        scheduling=job.status.scheduling or {},
        communication=_measured(job),
        edges=_gang_edges(job.spec.communication),
        placed=None if placed is None else (placed.status, placed.last_transition_time or ""),
        running_since=_since(running),
        min_runtime_seconds=_preemption(job.spec.run_policy).min_runtime_seconds,
        remaining_s=_remaining(job),
        asked=_asked(job.spec, consolidation),
        expected=_expected(job, resource),
    )


def _expected(job: JobObject, resource: str) -> tuple[ExpectedRole, ...]:
    """Of this attempt, or nothing: also where somebody else wrote what cannot be read."""
    meta, roles = job.metadata, {role.name: role.replicas for role in job.spec.roles}
    try:
        found = _EXPECTED.decode(job.status.expected_pods)
        if found is None or found.attempt != (job.status.attempt or 0) or [role.name for role in found.roles] != [*roles]:
            return ()
        pods = [(role.name, expected_view(role.pod, meta.uid, meta.namespace, resource)) for role in found.roles]
    except msgspec.MsgspecError:
        return ()
    return tuple(ExpectedRole(name, roles[name], pod) for name, pod in pods)


def _ended(conditions: Mapping[str, ConditionObject]) -> tuple[str, str] | None:
    found = (conditions[kind] for kind in (Type.COMPLETE, Type.FAILED) if kind in conditions)
    return next(((one.type, one.message or "") for one in found if one.status == "True"), None)


def _told(found: ConditionObject | None, reason: ConditionReason) -> str:
    """The message of a condition that holds for this reason; "" of any other."""
    holds = found is not None and found.status == "True" and found.reason == reason
    return (found.message or "") if found is not None and holds else ""


def _asked(spec: JobSpec, waits: Consolidation) -> JobDemand:
    own = spec.communication.custom_edges if spec.communication else None
    preemption, templates = _preemption(spec.run_policy), [role.template.spec if role.template else None for role in spec.roles]
    graces = [one.termination_grace_period_seconds for one in templates if one]
    return JobDemand(
        workers=sum(role.replicas for role in spec.roles),
        gpus=sum(role.replicas * role.gpus_per_replica for role in spec.roles),
        edges=len(own.edges) if own else 0,
        custom=own is not None,
        min_runtime_seconds=preemption.min_runtime_seconds,
        grace_seconds=preemption.grace_period_seconds,
        template_grace_seconds=max(
            (DEFAULT_GRACE_SECONDS if one is None else one for one in graces), default=DEFAULT_GRACE_SECONDS
        ),
        wait_seconds=waits.block_wait_seconds if waits.mode is ConsolidationMode.FIXED else 0,
        never_relaxes=waits.mode is ConsolidationMode.NEVER_RELAX,
        classes=(spec.priority_class_name,) if spec.priority_class_name else _template_classes(templates),
    )


def _template_classes(templates: Sequence[TemplateSpec | None]) -> tuple[str, ...]:
    return tuple(sorted({(one.priority_class_name if one else None) or "" for one in templates}))


def _since(condition: ConditionObject | None) -> float | None:
    """When a condition that holds began to; None while it does not."""
    return timestamps.seconds(condition.last_transition_time) if condition is not None and condition.status == "True" else None


def _measured(job: JobObject) -> float | None:
    """What the job's own steps say of its communication, where the user leaves that open."""
    asked, found = job.spec.communication, job.status.profile
    if asked is None or asked.bandwidth_sensitivity not in (None, "Auto") or found is None:
        return None
    try:
        share = float(found.communication or "")
    except ValueError:
        return None
    return share if 0 <= share <= MOST else None


def _gang_edges(spec: CommunicationSpec | None) -> tuple[tuple[int, int, int], ...]:
    own = spec.custom_edges if spec else None
    return tuple((edge.start, edge.to, edge.weight) for edge in own.edges) if own and own.scope == EdgeScope.GANG else ()


def _remaining(job: JobObject) -> float | None:
    found = None if job.status.progress is None else job.status.progress.remaining_seconds
    return None if found is None else float(min(found, MAX_WAIT_SECONDS))


def _consolidation(spec: ConsolidationSpec | None) -> Consolidation:
    given = {name: value for name, value in msgspec.structs.asdict(spec).items() if value is not None} if spec else {}
    return Consolidation(**{**given, "mode": ConsolidationMode(given.get("mode", ConsolidationMode.DEFAULT))})


def _preemption(policy: RunPolicySpec | None) -> Preemption:
    found = policy.preemption if policy else None
    given = {name: value for name, value in msgspec.structs.asdict(found).items() if value is not None} if found else {}
    return Preemption(**given)
