"""Nodes that an autoscaler is asked for: for a gang that no present node could ever hold, or that found no room for long. Pure.

cluster-autoscaler does not see a gang that waits: it has no pods. A ProvisioningRequest tells it what they will be. One stands
for one attempt, from when the gang is found to need nodes until the attempt is over: the pods name it, so that the
autoscaler makes no further room for them.
"""

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from kompakt_core.contract import timestamps
from kompakt_core.contract.conditions import ConditionReason, Type, condition
from kompakt_core.contract.scheduling_record import State
from kompakt_core.contract.words import NEVER_FITS
from kompakt_core.job import places_first
from kompakt_core.job.status import JobStatus

# So long cluster-autoscaler leaves a node group alone after its first failure: its flag --initial-node-group-backoff-duration
# (kubernetes/autoscaler, cluster-autoscaler/main.go).
AGAIN_SECONDS: Final = 300


class RequestState(Enum):
    """What the autoscaler says of it."""

    PENDING = auto()
    PROVISIONED = auto()  # the nodes are there, or on their way
    FAILED = auto()  # it adds none, or has taken them back
    DELETED = auto()  # it is gone as soon as nobody holds it by a finalizer


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A ProvisioningRequest of the job. `class_name`: which of the autoscaler's classes it names. `message`: the autoscaler's.
    `since`: when it failed, in seconds since the epoch; None where nobody can say. `templates`: names of its PodTemplates.
    """

    name: str
    class_name: str
    state: RequestState = RequestState.PENDING
    message: str = ""
    since: float | None = None
    templates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provisioning:
    """`class_name`: of the requests that are made. `request`: None while there is none. `after_s`: for how many seconds a gang
    must have found no room until nodes are asked for that it could do without; 0: they are not.
    """

    class_name: str
    request: NodeRequest | None = None
    after_s: int = 0


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """Make the ProvisioningRequest of an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class DeleteNodeRequest:
    """And its PodTemplates before it."""

    request: NodeRequest


Action = RequestNodes | DeleteNodeRequest


class ProvisioningStep(NamedTuple):
    """`until`: when another step follows by time alone (seconds since the epoch); None = never."""

    actions: list[Action]
    until: float | None = None


def request_name(job: str, attempt: int) -> str:
    """Of the attempt's ProvisioningRequest."""
    return f"{job}-a{attempt}"


def next_step(job: str, provisioning: Provisioning | None, after: JobStatus, now: float) -> ProvisioningStep:
    """About a job that is to run. `job`: its name."""
    found = provisioning.request if provisioning is not None else None
    if provisioning is None or (found is not None and found.state is RequestState.DELETED):  # its name is not free yet
        return ProvisioningStep([])
    if found is None:
        due = _due(provisioning, after)
        if due is None or now < due:
            return ProvisioningStep([], due)
        return ProvisioningStep([RequestNodes(after.attempt)])
    if (found.name, found.class_name) != (request_name(job, after.attempt), provisioning.class_name):
        return ProvisioningStep([DeleteNodeRequest(found)])
    if found.state is RequestState.PENDING and after.holds(Type.RUNNING):  # nodes came from elsewhere
        return ProvisioningStep([DeleteNodeRequest(found)])
    if found.state is not RequestState.FAILED or not _needed(provisioning, after, now):
        return ProvisioningStep([])
    again = _again(found, now)
    return ProvisioningStep([DeleteNodeRequest(found)]) if now >= again else ProvisioningStep([], again)


def over(provisioning: Provisioning | None) -> list[Action]:
    """About a job that is suspended or finished."""
    found = provisioning.request if provisioning is not None else None
    return [DeleteNodeRequest(found)] if found is not None and found.state is not RequestState.DELETED else []


def told(job: str, provisioning: Provisioning | None, after: JobStatus, now: float) -> JobStatus:
    """The status that says what became of the request of a gang that still waits. `job`: its name."""
    found = provisioning.request if provisioning is not None else None
    if provisioning is None or found is None or found.name != request_name(job, after.attempt):
        return after
    if not _needed(provisioning, after, now):
        return after
    words = f"ProvisioningRequest {found.name}: {found.message or 'not answered yet'}"
    if found.state is RequestState.FAILED:
        words += f"; it is made anew at {timestamps.encode(_again(found, now))}"
    return after.with_conditions(condition(Type.RECONCILING, True, ConditionReason.WAITING_FOR_NODES, words))


def consumed(job: str, provisioning: Provisioning | None, attempt: int) -> NodeRequest | None:
    """Which request pods of this attempt name. `job`: its name."""
    found = provisioning.request if provisioning is not None else None
    if found is None or found.state in (RequestState.FAILED, RequestState.DELETED) or found.name != request_name(job, attempt):
        return None
    return found


def _needed(provisioning: Provisioning, after: JobStatus, now: float) -> bool:
    due = _due(provisioning, after)
    return due is not None and now >= due


def _due(provisioning: Provisioning, after: JobStatus) -> float | None:
    """From when on nodes are asked for, by what the planner says of this attempt, of which no pod exists; None: not at all."""
    waits = after.scheduling_attempt == after.attempt and after.scheduling_state == State.WAITING
    if not waits or not places_first.expects_places(after):
        return None
    if after.scheduling_reason == NEVER_FITS:
        return -math.inf
    if after.scheduling_reason != State.WAITING or after.waiting_since is None or not provisioning.after_s:
        return None
    return after.waiting_since + provisioning.after_s


def _again(found: NodeRequest, now: float) -> float:
    """One that failed in the future failed by another clock: nobody knows what is left of the wait."""
    return now if found.since is None or found.since > now else found.since + AGAIN_SECONDS
