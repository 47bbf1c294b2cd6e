"""Jobs and traces as frozen values. All times are whole milliseconds of the trace's own clock."""

from dataclasses import dataclass
from typing import NewType

Milliseconds = NewType("Milliseconds", int)


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace: `gpus` for `duration` once it runs, without communication; all of them at once or none.

    `model`: what it trains, "" where the trace does not say. `comm_ratio`: seconds of communication per second of computing
    at level factor 1, None = by the network file. `priority`: larger goes first, for the policies that heed it.
    """

    number: int  # unique in its trace; the last word in every tie
    submit: Milliseconds
    duration: Milliseconds
    gpus: int
    model: str = ""
    comm_ratio: float | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of one file, ordered by (submit, number)."""

    name: str
    jobs: tuple[Job, ...]
