"""The four figures of a run."""

from collections.abc import Callable
from dataclasses import dataclass

from kompakt_core.errors import InvalidInput
from kompakt_simulator.simulation import Finished, Outcome


@dataclass(frozen=True, slots=True)
class Summary:
    """In seconds. A job's completion time (JCT) runs from its submission to its end; its wait is JCT minus duration.

    `makespan` is the last end on the trace's own clock. `p99` is the JCT at position int(0.99 n) of all n in ascending order.
    """

    finished: int
    dropped: int
    average_jct: float
    makespan: float
    average_wait: float
    p99_jct: float


def summarize(outcome: Outcome) -> Summary:
    """Raises InvalidInput when not one job fitted the cluster."""
    if not outcome.finished:
        smallest = min(job.gpus for job in outcome.dropped)
        raise InvalidInput(f"no job fits: the smallest needs {smallest} GPUs; give the cluster at least as many")
    jcts = sorted(_jct(done) for done in outcome.finished)
    return Summary(
        finished=len(jcts),
        dropped=len(outcome.dropped),
        average_jct=_average(outcome.finished, _jct),
        makespan=max(done.end for done in outcome.finished) / 1000,
        average_wait=_average(outcome.finished, lambda done: _jct(done) - done.job.duration),
        p99_jct=jcts[len(jcts) * 99 // 100] / 1000,
    )


def _jct(done: Finished) -> int:
    return done.end - done.job.submit


def _average(finished: tuple[Finished, ...], figure: Callable[[Finished], int]) -> float:
    return sum(map(figure, finished)) / len(finished) / 1000
