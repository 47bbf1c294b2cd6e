"""Nodes that an autoscaler is asked for, for a gang that no node of the cluster could ever hold. Pure.

cluster-autoscaler does not see a gang that waits: it has no pods. A ProvisioningRequest tells it what they will be. One stands
for one attempt, from when the planner says that the gang never fits until the attempt is over: the pods name it, so that the
autoscaler makes no further room for them.
"""

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
    """`class_name`: of the requests that are made. `request`: None while there is none."""

    class_name: str
    request: NodeRequest | None = None


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
        return ProvisioningStep([RequestNodes(after.attempt)] if _never_fits(after) else [])
    if (found.name, found.class_name) != (request_name(job, after.attempt), provisioning.class_name):
        return ProvisioningStep([DeleteNodeRequest(found)])
    if found.state is RequestState.PENDING and after.holds(Type.RUNNING):  # nodes came from elsewhere
        return ProvisioningStep([DeleteNodeRequest(found)])
    if found.state is not RequestState.FAILED or not _never_fits(after):
        return ProvisioningStep([])
    again = _again(found, now)
    return ProvisioningStep([DeleteNodeRequest(found)]) if now >= again else ProvisioningStep([], again)


def over(provisioning: Provisioning | None) -> list[Action]:
    """About a job that is suspended or finished."""
    found = provisioning.request if provisioning is not None else None
    return [DeleteNodeRequest(found)] if found is not None and found.state is not RequestState.DELETED else []


def told(job: str, provisioning: Provisioning | None, after: JobStatus, now: float) -> JobStatus:
    """The status that says what became of the request of a gang that never fits. `job`: its name."""
    found = provisioning.request if provisioning is not None else None
    if found is None or found.name != request_name(job, after.attempt) or not _never_fits(after):
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


def _never_fits(after: JobStatus) -> bool:
    """Whether the planner says so of this attempt, of which no pod exists."""
    waits = after.scheduling_attempt == after.attempt and after.scheduling_state == State.WAITING
    return waits and after.scheduling_reason == NEVER_FITS and places_first.expects_places(after)


def _again(found: NodeRequest, now: float) -> float:
    """One that failed in the future failed by another clock: nobody knows what is left of the wait."""
    return now if found.since is None or found.since > now else found.since + AGAIN_SECONDS
