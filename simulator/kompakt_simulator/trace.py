"""Jobs and traces as frozen values. All times are whole milliseconds of the trace's own clock."""

from dataclasses import dataclass
from typing import NewType

Milliseconds = NewType("Milliseconds", int)


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace: `gpus` for `duration` once it runs; all of them at once or none."""

    number: int  # unique in its trace; the last word in every tie
    submit: Milliseconds
    duration: Milliseconds
    gpus: int


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of one file, ordered by (submit, number)."""

    name: str
    jobs: tuple[Job, ...]
