"""How the simulator's time or work grows with the length of a trace: events per second, memory, and the exponent.

    python -m benchmarks.simulator TRACE [--cluster 4x16x8] [--policy fifo-skip,srtf] [--lengths repeat] [--rounds 3 | --count]

TRACE is a file the simulator reads. The usual one is `simulator/traces/philly.csv` of petuum/adaptdl, branch osdi21-artifact
(82,247 jobs). For each policy a line per length, each twice the one before; `--lengths` says how (growth.py), here of three:
  first: a quarter, half and all of the trace from its beginning. Another half may be busier: then work grows faster than jobs.
  thin: every 4th, every 2nd and every job, at the same jobs an hour. Bursts hold fewer jobs, so that fewer wait at a time.
  repeat: the first quarter once, twice and four times in a row. The same jobs in the same bursts: only the length differs.

Each run has a process of its own, so that none finds another's heap; `MB` is the most that it held, reading the trace included.
Seconds are those of the processor, checks included. Lengths take turns, `--rounds` times; shown are the least and the most.
`n log n` is the exponent that time would have if it grew so, to be held against the one of the least seconds, `by`.

With `--count` one run of each length under a profiler, and no times: how many waiting jobs were asked whether they go, how many
places were looked for, and function calls in all. No other work on the machine changes these. What passes inside one call,
sorting or copying a list, shows in time only.
"""

import argparse
import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.growth import WAYS, Work, counted, exponent, n_log_n, of_length
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterState
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Setting
from kompakt_simulator.simulation import SimulationResult, simulate
from kompakt_simulator.traces.reading import load_trace

# The compute-to-communication ratios of six models, see benchmarks/policies.py.
CONGESTED = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 32}, unnamed=(0.6, 0.5, 0.3, 0.15, 0.08, 0.06))
COMMON: Final = ("policy", "jobs", "events", "stops", "waiting")
TIMES: Final = (*COMMON, "least s", "most s", "events/s", "by", "n log n", "MB")
COUNTS: Final = (*COMMON, "asked/job", "places/job", "calls/job", "asked by", "calls by", "n log n")


@dataclass(frozen=True, slots=True)
class Task:
    """One run, as told to its process."""

    trace: str
    cluster: str
    policy: str
    placement: str
    congested: bool
    lengths: str
    index: int
    parts: int
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One run, as its process tells it. `work`: where it was counted; then the seconds are the profiler's as well."""

    jobs: int
    events: int
    stops: int
    waiting: float
    seconds: float
    megabytes: float
    work: Work | None = None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--cluster", default="4x16x8")
    parser.add_argument("--policy", default="fifo-skip", help="comma-separated; dally:12:24 = with these timers, in leases")
    parser.add_argument("--placement", choices=list(PLACEMENTS), default="levels")
    parser.add_argument("--lengths", choices=list(WAYS), default="first")
    parser.add_argument("--parts", type=int, default=3, help="how many lengths")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    parser.add_argument("--count", action="store_true", help="count work instead of timing it")
    parser.add_argument("--congested", action="store_true", help="with a network: machine .05, rack 1, cluster 32")
    return parser.parse_args()


def run(task: Task) -> Seen:
    """In a process of its own."""
    cluster = ClusterState.of(read_shape(task.cluster))
    name, *timers = task.policy.split(":")
    setting = Setting(network=CONGESTED) if task.congested else Setting()
    setting = replace(setting, timers=(float(timers[0]), float(timers[1]))) if timers else setting
    # A job that names no model has its ratio by its number: told here, so that it keeps it where it is repeated.
    trace = [replace(job, comm_ratio=setting.network.ratio(job)) for job in load_trace(task.trace).jobs]
    jobs = of_length(trace, task.lengths, task.index, task.parts)
    del trace

    def call() -> SimulationResult:
        return simulate(jobs, cluster, POLICIES[name], PLACEMENTS[task.placement], setting)

    began = time.process_time()
    outcome, work = counted(call) if task.counts else (call(), None)
    took = time.process_time() - began
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Seen(len(jobs), outcome.events, outcome.preemptions, waiting(outcome), took, resident, work)


def waiting(outcome: SimulationResult) -> float:
    """How many jobs wait at a time, on average until the last end."""
    waited = sum(done.end - done.job.submit - done.held for done in outcome.finished)
    return waited / max(done.end for done in outcome.finished)


def alone(task: Task) -> Seen:
    """The run in a process that ends with it. Raises InvalidInput as it does."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(run, task).result()


def main() -> None:
    given = arguments()
    how = "counts" if given.count else f"times of {given.rounds} rounds"
    print(f"{given.trace.rpartition('/')[2]} on {given.cluster}, {given.placement}, {given.lengths}, {how}\n")
    heads = COUNTS if given.count else TIMES
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for policy in given.policy.split(","):
        before: list[Seen] = []
        for runs in seen(given, policy):
            cells = counts_of(runs[0], *before[:1]) if given.count else times_of(runs, before)
            print(f"| {policy} | {' | '.join(cells)} |", flush=True)
            before = runs


def seen(given: argparse.Namespace, policy: str) -> list[list[Seen]]:
    """By length, the runs of it; in each round all lengths take their turn."""
    tasks = [
        Task(given.trace, given.cluster, policy, given.placement, given.congested, given.lengths, index, given.parts, given.count)
        for index in range(given.parts)
    ]
    try:
        rounds = [[alone(task) for task in tasks] for _ in range(1 if given.count else given.rounds)]
    except InvalidInput as error:
        raise SystemExit(str(error)) from error
    return [list(runs) for runs in zip(*rounds, strict=True)]


def times_of(runs: list[Seen], before: list[Seen]) -> tuple[str, ...]:
    """Cells of one length; `before`: the runs of the one before."""
    least, most = min(run.seconds for run in runs), max(run.seconds for run in runs)
    by = growth(before[0].jobs, runs[0].jobs, min(run.seconds for run in before), least) if before else ""
    straight = f"n^{n_log_n(before[0].jobs, runs[0].jobs):.2f}" if before else ""
    resident = max(run.megabytes for run in runs)
    return *common(runs[0]), f"{least:.2f}", f"{most:.2f}", f"{runs[0].events / least:,.0f}", by, straight, f"{resident:.0f}"


def counts_of(run: Seen, before: Seen | None = None) -> tuple[str, ...]:
    """The same for what was counted."""
    assert run.work is not None
    work, jobs = run.work, run.jobs
    grown = ("", "", "")
    if before is not None and before.work is not None:
        asked, calls = ((before.work.asked, work.asked), (before.work.calls, work.calls))
        grown = growth(before.jobs, jobs, *asked), growth(before.jobs, jobs, *calls), f"n^{n_log_n(before.jobs, jobs):.2f}"
    return *common(run), f"{work.asked / jobs:.1f}", f"{work.places / jobs:.1f}", f"{work.calls / jobs:,.1f}", *grown


def common(run: Seen) -> tuple[str, ...]:
    """What a run is, however it was measured."""
    return f"{run.jobs:,}", f"{run.events:,}", f"{run.stops:,}", f"{run.waiting:,.0f}"


def growth(jobs: int, more_jobs: int, then: float, now: float) -> str:
    """How a figure grew from one length to the next; nothing where it was none."""
    return f"n^{exponent(now / then, more_jobs / jobs):.2f}" if then and now else ""


if __name__ == "__main__":
    main()
