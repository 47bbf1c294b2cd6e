"""The columns of a comparison that people read, each time in the unit that fits, and in words how to read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kompakt_simulator.figures import Summary
from kompakt_simulator.setting import Knowledge
from kompakt_simulator.simulation import SimulationResult


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy's run. `knows`: what it was told of durations; `free_of_cost`: stopping jobs cost it nothing."""

    policy: str
    summary: Summary
    outcome: SimulationResult
    ring_share: float | None = None  # see figures.ring_share; None where it is not known
    knows: Knowledge = Knowledge.NONE
    free_of_cost: bool = False


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """How times of a column or an axis are written."""

    name: str
    seconds: int
    digits: int

    def text(self, seconds: float) -> str:
        """The time without the unit's name."""
        return f"{seconds / self.seconds:.{self.digits}f}"


@dataclass(frozen=True, slots=True)
class Column:
    """A head with the unit of its times, "" for other figures, and a cell per run."""

    name: str
    unit: str
    cells: tuple[str, ...]


SECONDS: Final = TimeUnit("s", 1, 1)
HOURS: Final = TimeUnit("h", 3600, 2)
# Columns that are compared with each other share a unit: that of the first.
_TIMES: Final = (
    (("avg JCT", "avg_jct_s"), ("p50 JCT", "p50_jct_s"), ("p99 JCT", "p99_jct_s"), ("avg queue", "avg_queue_s")),
    (("makespan", "makespan_s"),),
    (("comm/job", "comm_s_per_job"),),
    (("restart/job", "restart_s_per_job"),),
)
MARK: Final = "*"
_HOW_TO_READ: Final = (
    "JCT is the time from a job's submission to its completion; less is better. Compare avg JCT for all jobs together, p50 JCT "
    "for the typical job, p99 JCT for the slowest 1 %, makespan for the end of the whole trace.",
    "Why a policy is better: avg queue is time without GPUs, comm/job time for communication, restart/job time lost to stops.",
)
_TOLD: Final = f"{MARK} knows each job's duration in advance: compare it only with other policies marked {MARK}."


def unit_for(longest_s: float) -> TimeUnit:
    """Hours from two hours on: traces of days are not read in seconds."""
    return HOURS if longest_s >= 2 * HOURS.seconds else SECONDS


def columns(runs: Sequence[PolicyRun]) -> list[Column]:
    """All columns but the policy's name; "ring" only where one of the runs has it."""
    summaries = [run.summary for run in runs]
    found = [column for group in _TIMES for column in _of_one_unit(group, summaries)]
    found.append(Column("GPUs held", "", tuple(f"{each.gpu_utilization:.1%}" for each in summaries)))
    found.append(Column("stops", "", tuple(str(each.preemptions) for each in summaries)))
    found.append(Column("refused", "", tuple(str(each.refused) for each in summaries)))
    if any(run.ring_share is not None for run in runs):
        found.append(Column("ring", "", tuple("-" if run.ring_share is None else f"{run.ring_share:.1%}" for run in runs)))
    return found


def _of_one_unit(group: Sequence[tuple[str, str]], summaries: Sequence[Summary]) -> list[Column]:
    unit = unit_for(max(getattr(each, group[0][1]) for each in summaries))
    return [Column(name, unit.name, tuple(unit.text(getattr(each, field)) for each in summaries)) for name, field in group]


def label(run: PolicyRun) -> str:
    """The policy's name, marked if it was told durations."""
    return f"{run.policy} {MARK}" if run.knows > Knowledge.NONE else run.policy


def reading(runs: Sequence[PolicyRun]) -> list[str]:
    """In sentences which column decides for which goal, and what cannot be compared fairly."""
    said = list(_HOW_TO_READ) if len(runs) > 1 else []
    if any(run.knows > Knowledge.NONE for run in runs):
        said.append(_TOLD)
    free = ", ".join(run.policy for run in runs if run.free_of_cost)
    return [*said, f"Stopping jobs costs {free} nothing: a bound, not a policy to run."] if free else said
