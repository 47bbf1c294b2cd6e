"""The figures of a run, all times in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from kompakt_core.errors import InvalidInput
from kompakt_simulator.audit import violations_of
from kompakt_simulator.rules import Rules
from kompakt_simulator.simulation import Finished, Outcome


@dataclass(frozen=True, slots=True)
class Summary:
    """A job's completion time (JCT) runs from its submission to its end; its queue time is that minus holding GPUs.

    p50 and p99 stand at positions int(.5 n) and int(.99 n) of all n in ascending order. `makespan_s` is the last end on the
    trace's own clock (or since the first submission, see Rules). `comm_s_per_job`: time spent computing and communicating,
    minus computing. `restart_s_per_job`: time spent starting again and repeating lost work. `gpu_utilization`: GPU-seconds
    held, those while giving up included, of all GPUs until the makespan. `refused`: jobs larger than the cluster.
    `violations`: rules found broken afterwards, see audit.
    """

    avg_jct_s: float
    p50_jct_s: float
    p99_jct_s: float
    avg_queue_s: float
    p99_queue_s: float
    makespan_s: float
    comm_s_per_job: float
    restart_s_per_job: float
    gpu_utilization: float
    preemptions: int
    refused: int
    violations: int
    finished: int

    def as_json(self) -> dict[str, float | int]:
        """The figures that `-o json` prints, in its order."""
        inner = ("p99_queue_s", "finished")
        return {name: getattr(self, name) for name in self.__slots__ if name not in inner}


def summarize(outcome: Outcome, rules: Rules = Rules()) -> Summary:  # noqa: B008 - frozen
    """Raises InvalidInput when not one job fitted the cluster."""
    done = outcome.finished
    if not done:
        smallest = min(job.gpus for job in outcome.dropped)
        raise InvalidInput(f"no job fits: the smallest needs {smallest} GPUs; the largest possible is {outcome.cluster_gpus}")
    jcts = sorted(jct_ms(each) for each in done)
    queues = sorted(jct_ms(each) - each.held for each in done)
    begin = 0 if rules.clock_of_trace else min(each.job.submit for each in done)
    makespan = max(each.end for each in done) - begin
    return Summary(
        avg_jct_s=_mean(jcts),
        p50_jct_s=_at(jcts, 50),
        p99_jct_s=_at(jcts, 99),
        avg_queue_s=_mean(queues),
        p99_queue_s=_at(queues, 99),
        makespan_s=makespan / 1000,
        comm_s_per_job=_mean([each.comm for each in done]),
        restart_s_per_job=_mean([each.restart for each in done]),
        gpu_utilization=outcome.gpu_ms / (outcome.cluster_gpus * makespan),
        preemptions=outcome.preemptions,
        refused=len(outcome.dropped),
        violations=len(violations_of(outcome)),
        finished=len(done),
    )


def jct_ms(done: Finished) -> int:
    """Completion time of one job."""
    return done.end - done.job.submit


def _at(values: Sequence[int], percent: int) -> float:
    return values[len(values) * percent // 100] / 1000


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) / 1000
