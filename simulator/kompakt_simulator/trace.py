"""Jobs and traces as frozen values. All times are whole milliseconds of the trace's own clock."""

from dataclasses import dataclass, field
from typing import NewType

Milliseconds = NewType("Milliseconds", int)


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace: `gpus` for `duration` once it runs, without communication; all of them at once or none.

    `model`: what it trains, "" where the trace does not say. `comm_ratio`: seconds of communication per second of computing
    at level factor 1, None = by the network file. `priority`: larger goes first, for the policies that heed it.
    `line`: where it stands in its file, 0 = in none.
    """

    number: int  # unique in its trace; the last word in every tie
    submit: Milliseconds
    duration: Milliseconds
    gpus: int
    model: str = ""
    comm_ratio: float | None = None
    priority: int = 0
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of one file, ordered by (submit, number). `work`: which of its columns is the work of a job, in which unit.

    `left_out`: how many more stand there that never ran, as far as the file tells.
    """

    name: str
    jobs: tuple[Job, ...]
    work: str = ""
    left_out: int = 0
