"""Phases of a TrainingJob: for people, as one printer column. Conditions are the interface for programs."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Where a job stands. NEW: the operator has not reconciled it yet."""

    NEW = ""
    SUSPENDED = "Suspended"  # no pods, on request
    PENDING = "Pending"  # pods exist or are about to, not all have a node
    STARTING = "Starting"  # all workers have a node, not all run
    RUNNING = "Running"  # all workers run, or have already ended well
    RESTARTING = "Restarting"  # the last attempt's pods are on their way out, the next one's are not complete
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINISHED: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})
_ENDS: Final = frozenset({Phase.SUSPENDED, Phase.RESTARTING, *FINISHED})
# Each phase and where it may go. An operator that was away sees only the end of a stretch, so stretches may be skipped.
MOVES: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.NEW: frozenset({Phase.SUSPENDED, Phase.PENDING, Phase.FAILED}),
    Phase.SUSPENDED: frozenset({Phase.PENDING, Phase.FAILED}),
    Phase.PENDING: frozenset({Phase.STARTING, Phase.RUNNING}) | _ENDS,
    Phase.STARTING: frozenset({Phase.RUNNING}) | _ENDS,
    Phase.RUNNING: _ENDS,
    Phase.RESTARTING: frozenset({Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED}) | FINISHED,
    Phase.SUCCEEDED: frozenset(),
    Phase.FAILED: frozenset(),
}


def moved(current: Phase, wanted: Phase) -> Phase:
    """The phase after an observation: `wanted` where the table allows the move, else unchanged.

    Observations can lag behind: a pod list read a moment too early must not send a running job back to Pending.
    """
    return wanted if wanted in MOVES[current] else current
