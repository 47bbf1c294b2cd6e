"""Gangs of pods that others made: what their pods say of them, and what becomes of their objects. Pure."""

from collections.abc import Iterable, Sequence
from enum import Enum, auto

import msgspec

from kompakt_core import contract
from kompakt_core.contract import placement_annotations
from kompakt_core.contract.gang_member import GangMember
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.job.limited import JobDemand
from kompakt_extender.views import JobKind, JobView, PodView


class Removal(Enum):
    """What is wanted of an object whose pods are gone."""

    DELETE = auto()


def wanted(pods: Sequence[PodView], known: JobView | None) -> GangMember | Removal | None:
    """What is to be done about the object of a gang: its spec is to be written so, or it is to go; None: nothing.

    An object without pods says nothing; one whose pods have ended stays as long as they do. Pods of another scheduler are none.
    """
    pods = [pod for pod in pods if pod.ours]
    if not pods:
        return None if known is None else Removal.DELETE
    told = {pod.gang for pod in pods if pod.gang is not None and not (pod.deleting or pod.finished)}
    written = None if known is None else GangMember(known.workers, known.required_level)
    if not told or written in told:
        return None
    return min(told, key=lambda one: (one.size, one.required_level))


def incomplete_message(job: JobView, pods: Sequence[PodView]) -> str:
    """Why the gang cannot be planned yet, one sentence for people; the same for any number of pods that is too small."""
    sizes = sorted({pod.gang.size for pod in pods if pod.gang is not None})
    levels = sorted({pod.gang.required_level for pod in pods if pod.gang is not None})
    if len(sizes) > 1:
        return f"its pods say sizes {' and '.join(map(str, sizes))}: all must carry the same {contract.ANN_GANG_SIZE}"
    if len(levels) > 1:
        return f"its pods say levels {' and '.join(levels)}: all must carry the same {contract.ANN_REQUIRED_LEVEL}"
    if len(pods) > job.workers:
        return (
            f"{len(pods)} living pods carry its label {contract.LABEL_GANG}, and {contract.ANN_GANG_SIZE} says {job.workers}: "
            "two gangs of one namespace need two names"
        )
    if len(pods) < job.workers:
        return f"not all of its {job.workers} pods exist yet, as many as {contract.ANN_GANG_SIZE} says"
    if any(pod.node for pod in pods):
        return "its pods were given nodes before this object was made, or by somebody else"
    return "its pods have scheduling gates of others, which must go first"


def is_made_anew(job: JobView, record: Record, pods: Sequence[PodView]) -> bool:
    """Whether none of the pods that were given places is left, and others have come: the gang begins once more."""
    if job.kind is not JobKind.GANG or record.state is not State.RELEASED or record.plan is None:
        return False
    planned = {seat.uid for seat in record.plan.pods}
    return bool(pods) and planned.isdisjoint(pod.uid for pod in pods)


def demanding(job: JobView, pods: Iterable[PodView]) -> JobView:
    """With what its pods ask for, as far as Limits speak of it: its object does not say that."""
    if job.kind is not JobKind.GANG:
        return job
    pods = list(pods)
    edges = max((len(placement_annotations.readable(pod.annotations).edges) for pod in pods), default=0)
    asked = JobDemand(
        workers=len(pods),
        gpus=sum(pod.gpus for pod in pods),
        edges=edges,
        custom=bool(edges),
        min_runtime_seconds=0,
        grace_seconds=0,
        template_grace_seconds=max((pod.grace_seconds for pod in pods), default=0),
        classes=tuple(sorted({pod.priority_class for pod in pods})),
    )
    return msgspec.structs.replace(job, asked=asked)
