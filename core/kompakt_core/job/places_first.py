"""Whether the pods of an attempt are created now, or the planner is to find their places first.

A gang that waits needs no pods: a thousand waiting gangs of a thousand pods each would be a million objects that do nothing. The
pods come first where the planner does not answer (an earlier version of it cannot), or where somebody else has to see them.
"""

from enum import Enum, auto
from typing import NamedTuple

from kompakt_core.contract import timestamps
from kompakt_core.contract.scheduling_record import PODS_NOT_CREATED
from kompakt_core.job.status import JobStatus


class CreationStep(Enum):
    """What to do about an attempt without pods."""

    ASK = auto()  # the API server what they will ask for
    WAIT = auto()  # for places
    CREATE = auto()


class NextStep(NamedTuple):
    """`until`: when another step follows by time alone (seconds since the epoch); None = never."""

    step: CreationStep
    until: float | None = None


def next_step(after: JobStatus, now: float, patience: float) -> NextStep:
    """`patience`: seconds until the planner has answered at the latest; 0: it is not asked."""
    if not patience:
        return NextStep(CreationStep.CREATE)
    if not asked(after):
        return NextStep(CreationStep.ASK)
    if not expects_places(after) or _has_places(after):
        return NextStep(CreationStep.CREATE)
    return NextStep(CreationStep.WAIT) if after.scheduling_attempt == after.attempt else _unanswered(after, now, patience)


def asked(after: JobStatus) -> bool:
    """Whether the API server has said what the pods of this attempt will ask for."""
    return after.expected is not None and after.expected.attempt == after.attempt


def expects_places(after: JobStatus) -> bool:
    """Whether the planner can find places for this attempt before its pods exist."""
    return asked(after) and after.expected is not None and bool(after.expected.pods)


def _has_places(after: JobStatus) -> bool:
    """Whether it has them, or has given them back since no pods came."""
    return after.scheduling_attempt == after.attempt and (after.has_places or after.scheduling_reason == PODS_NOT_CREATED)


def _unanswered(after: JobStatus, now: float, patience: float) -> NextStep:
    """One that was asked in the future was asked by another clock: nobody knows what is left of the patience."""
    since = timestamps.seconds(after.expected.since) if after.expected is not None else None
    if since is None or since > now or now >= since + patience:
        return NextStep(CreationStep.CREATE)
    return NextStep(CreationStep.WAIT, since + patience)
