"""The figures of a run, all times in seconds, and what must hold of its record: checked by other code than that which made it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph
from kompakt_simulator.cluster import ClusterShape, ClusterState, GpuSet
from kompakt_simulator.setting import SimulationRules
from kompakt_simulator.simulation import FinishedJob, SimulationResult


def violations_of(outcome: SimulationResult) -> list[str]:
    """Broken rules in words: a GPU held twice, a gang that held a part, a job that ran before its submission or too short."""
    return [*_held_twice(outcome), *_parts(outcome), *_wrong_times(outcome)]


def _held_twice(outcome: SimulationResult) -> list[str]:
    # At one moment ends come before beginnings. A stretch without length holds nothing.
    moments = [(each.end, 0, each.gpus, each.number) for each in outcome.stretches if each.end > each.start]
    moments += [(each.start, 1, each.gpus, each.number) for each in outcome.stretches if each.end > each.start]
    held, found = 0, []
    for at, begins, gpus, number in sorted(moments):
        if begins and held & gpus:
            found.append(f"at {at} ms job {number} got GPUs that another held")
        held = held | gpus if begins else held & ~gpus
    return found


def _parts(outcome: SimulationResult) -> list[str]:
    wanted = {done.job.number: done.job.gpus for done in outcome.finished}
    wrong = [each for each in outcome.stretches if each.gpus.bit_count() != wanted.get(each.number)]
    return [f"at {each.start} ms job {each.number} held {each.gpus.bit_count()} GPUs" for each in wrong]


def _wrong_times(outcome: SimulationResult) -> list[str]:
    held: dict[int, int] = {}
    first: dict[int, int] = {}
    for each in outcome.stretches:
        held[each.number] = held.get(each.number, 0) + each.end - each.start
        first[each.number] = min(first.get(each.number, each.start), each.start)
    found = []
    for done in outcome.finished:
        number = done.job.number
        if first.get(number, -1) < done.job.submit:
            found.append(f"job {number} ran before its submission")
        if held.get(number, 0) < done.job.duration:
            found.append(f"job {number} ended after {held.get(number, 0)} ms of its {done.job.duration}")
    if len({done.job.number for done in outcome.finished}) != len(outcome.finished):
        found.append("a job ended twice")
    return found


@dataclass(frozen=True, slots=True)
class Summary:
    """A job's completion time (JCT) runs from its submission to its end; its queue time is that minus holding GPUs.

    p50 and p99 stand at positions int(.5 n) and int(.99 n) of all n in ascending order. `makespan_s` is the last end on the
    trace's own clock (or since the first submission, see SimulationRules). `comm_s_per_job`: time of computing and communicating,
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


def summarize(outcome: SimulationResult, rules: SimulationRules = SimulationRules()) -> Summary:  # noqa: B008 - frozen
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


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of a run, all times in seconds on the trace's clock. Refused: it needs more GPUs than the cluster has, and all but
    what the trace says of it is None.

    `start_s`: when it first got GPUs. `queue_s`: jct_s minus holding GPUs. `comm_s`, `restart_s`: as in Summary. `level`,
    `machines`: of the GPUs that it held last.
    """

    job_id: int
    state: str
    model: str
    priority: int
    gpus: int
    submit_s: float
    duration_s: float
    start_s: float | None = None
    end_s: float | None = None
    jct_s: float | None = None
    queue_s: float | None = None
    comm_s: float | None = None
    restart_s: float | None = None
    preemptions: int | None = None
    level: str | None = None
    machines: int | None = None


def job_rows(outcome: SimulationResult, shape: ClusterShape) -> Iterator[JobRow]:
    """Every job of the trace once, by number."""
    starts = Counter(each.number for each in outcome.stretches)
    finished = {done.job.number: done for done in outcome.finished}
    jobs = [*(done.job for done in outcome.finished), *outcome.dropped]
    for job in sorted(jobs, key=lambda job: job.number):
        done = finished.get(job.number)
        row = JobRow(
            job_id=job.number,
            state="Refused" if done is None else "Finished",
            model=job.model,
            priority=job.priority,
            gpus=job.gpus,
            submit_s=job.submit / 1000,
            duration_s=job.duration / 1000,
        )
        yield row if done is None else _ran(row, done, starts[job.number] - 1, shape)


def _ran(row: JobRow, done: FinishedJob, preemptions: int, shape: ClusterShape) -> JobRow:
    return replace(
        row,
        start_s=done.start / 1000,
        end_s=done.end / 1000,
        jct_s=jct_ms(done) / 1000,
        queue_s=(jct_ms(done) - done.held) / 1000,
        comm_s=done.comm / 1000,
        restart_s=done.restart / 1000,
        preemptions=preemptions,
        level=shape.level_of(done.gpus).value,
        machines=len(shape.per_machine(done.gpus)),
    )


def jct_ms(done: FinishedJob) -> int:
    """Completion time of one job."""
    return done.end - done.job.submit


def _at(values: Sequence[int], percent: int) -> float:
    return values[len(values) * percent // 100] / 1000


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) / 1000


def ring_share(outcome: SimulationResult, cluster: ClusterState, graph: LinkGraph) -> float | None:
    """Bandwidth of the ring through a job's GPUs as a share of the best of its size on an empty machine, mean over jobs.

    Counted are jobs of two GPUs up to one machine's; one that is spread over machines counts 0, since no ring of links
    inside a machine holds it. None when no such job ran. Raises InvalidInput when the graph has another number of GPUs.
    """
    if graph.size != cluster.gpus_per_machine:
        raise InvalidInput(
            f"machines of {cluster.gpus_per_machine} GPUs with a link graph of {graph.size}; expected equal numbers"
        )
    table = table_for(graph, Pattern.RING)
    best = {size: table.value(table.best(graph.all_gpus, size)) for size in range(2, graph.size + 1)}
    counted = [done for done in outcome.finished if best.get(done.job.gpus)]
    shares = [table.value(_on_one_machine(cluster, done.gpus)) / best[done.job.gpus] for done in counted]
    return sum(shares) / len(shares) if shares else None


def _on_one_machine(cluster: ClusterState, gpus: GpuSet) -> int:
    """The set as a mask of its machine; empty when it is spread."""
    lowest = (gpus & -gpus).bit_length() - 1
    mask = gpus >> lowest // cluster.gpus_per_machine * cluster.gpus_per_machine
    return mask if mask < 1 << cluster.gpus_per_machine else 0
