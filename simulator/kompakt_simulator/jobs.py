"""Jobs as a trace has them, and on their way through a run: what a policy may see, and what only the world knows.

All times are whole milliseconds of the trace's own clock.
"""

from dataclasses import dataclass, field
from typing import NewType

from kompakt_simulator.cluster import NOTHING, GpuSet

Milliseconds = NewType("Milliseconds", int)


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace: `gpus` for `duration` once it runs, without communication; all of them at once or none.

    `model`: what it trains, "" where the trace does not say. `comm_ratio`: seconds of communication per second of computing
    at level factor 1, None = by the network file. `priority`: larger goes first, for the policies that heed it.
    `chunk_ms`: milliseconds of computing of the pieces in which its work comes, 0 = none (SimulationRules).
    `line`: where it stands in its file, 0 = in none.
    """

    number: int  # unique in its trace; the last word in every tie
    submit: Milliseconds
    duration: Milliseconds
    gpus: int
    model: str = ""
    comm_ratio: float | None = None
    priority: int = 0
    chunk_ms: float = 0.0
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of one file, ordered by (submit, number). `work`: which of its columns is the work of a job, in which unit.

    `left_out`: how many more stand there that never ran, as far as the file tells.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    work: str = ""
    left_out: int = 0


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """Underscored fields are the world's: they tell how long the job still takes, which policies learn only from the world.

    `since`: when it last got or lost GPUs, at first its submission. `done`, `ran`: milliseconds of computing, and of wall time
    spent on it with the network's share, in stretches that are over.
    """

    job: TraceJob
    ratio: float  # c of the network model; 0: communication is free
    since: Milliseconds
    _left: float  # milliseconds of computing
    _declared: float  # what the job says it needs in all; see Setting.declared_error
    held: GpuSet = NOTHING
    last: GpuSet = NOTHING  # what it held last
    claimed: GpuSet = NOTHING  # promised to it, partly still being given up by others
    started: int = 0  # how many times
    begin: int = 0  # of this stretch
    computes_from: int = 0  # `begin` and the restart
    slow: float = 0.0  # extra time per computing time of this stretch
    done: float = 0.0
    ran: float = 0.0
    first_start: int = -1
    held_ms: int = 0
    comm_ms: float = 0.0
    restart_ms: float = 0.0
    _end: int = field(default=-1)

    @property
    def number(self) -> int:
        return self.job.number

    @property
    def gpus(self) -> int:
        return self.job.gpus

    def attained(self, now: int) -> float:
        """Milliseconds of computing done until now."""
        if not self.held or now <= self.computes_from:
            return self.done
        return self.done + (now - self.computes_from) / (1 + self.slow)

    def running(self, now: int) -> float:
        """Milliseconds of wall time spent computing and communicating until now."""
        return self.ran + (max(0, now - self.computes_from) if self.held else 0)

    def efficiency(self, now: int) -> float:
        """Share of its running time that was computing: Dally's value, 0 before it ever ran."""
        running = self.running(now)
        return self.attained(now) / running if running else 0.0
