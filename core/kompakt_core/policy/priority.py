"""Whom freed GPUs are offered to first under network-sensitive preemption (Dally, arXiv 2401.16492; see timers.py)."""

from dataclasses import dataclass

from kompakt_core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Progress:
    """`done`: share of the job's iterations; `running_s`: wall time spent running, network included, queueing excluded;
    `ideal_s`: wall time of the whole job without any slowdown.
    """

    done: float
    running_s: float
    ideal_s: float


def priority(progress: Progress) -> float:
    """work done / (running time / ideal time); the lowest goes first.

    It is the average efficiency so far: 1 for a job that was never slowed, however long it ran, 0 for one that never ran.
    Raises InvalidInput for negative times, shares outside 0..1, or an ideal time of 0.
    """
    if not 0 <= progress.done <= 1 or progress.running_s < 0 or progress.ideal_s <= 0:
        raise InvalidInput(f"{progress}; expected a share from 0 to 1, a running time from 0 up, an ideal time above 0")
    if progress.running_s == 0:
        return 0.0
    return progress.done / (progress.running_s / progress.ideal_s)
