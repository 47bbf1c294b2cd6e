"""Whether a reservation that stands written in a job's status may be taken over by a new leader.

A status can be forged by whoever may write one. So of what stands there nothing is believed that would not be decided again: that
the job may have others ended, whom, and which GPUs it gets of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kompakt_core.contract.scheduling_record import Record, Victim
from kompakt_core.ids import NodeName
from kompakt_core.policy.preempt import RunningGang
from kompakt_extender.gangs import preempts_with
from kompakt_extender.views import JobView, PodView


@dataclass(frozen=True, slots=True)
class VictimState:
    """What is there of a victim: its job (None: gone), pods that work for it, and as what it runs (None: not as a whole)."""

    job: JobView | None
    pods: Sequence[PodView]
    running: RunningGang | None


def rightful(record: Record, pods: Sequence[PodView], victims: Mapping[Victim, VictimState], now: float) -> bool:
    """Whether the gang of these pods may wait for its victims, with the GPUs that are reserved for it."""
    priority = preempts_with(pods)
    reserved = [(node, uuid) for node, uuids in record.reserved_gpus for uuid in uuids]
    whole = len(set(reserved)) == len(reserved) == sum(pod.gpus for pod in pods)
    nodes = {node for node, _ in reserved}
    return priority is not None and whole and all(may_end(*one, priority, nodes, now) for one in victims.items())


def may_end(victim: Victim, state: VictimState, priority: int, nodes: Iterable[NodeName], now: float) -> bool:
    """Whether this victim has ended, or may be asked to by a gang of that priority that gets GPUs of these nodes."""
    job, gang = state.job, state.running
    ripe = gang is not None and gang.priority < priority and gang.protected_until <= now
    may = ripe and gang is not None and not {pod.node for pod in gang.pods}.isdisjoint(nodes)
    if not victim.attempt:  # a plain pod
        return may or all(pod.deleting for pod in state.pods)
    if job is None or job.attempt != victim.attempt:
        return True
    if victim.name and (job.namespace, job.name) != (victim.namespace, victim.name):
        return False  # one of another namespace is written without names
    if all(pod.finished or pod.deleting for pod in state.pods if pod.attempt == victim.attempt):
        return True
    return may
