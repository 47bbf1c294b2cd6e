"""Which decisions of a policy cost how much against the best policy of its class, on one trace.

    python -m benchmarks.losses --trace muri-trace3-pr [--network congested] [--at-once] [--declared] [--against tiresias]
    python -m benchmarks.losses --column philly-2869ce-flat [--declared] [--against tiresias]

Prints what a job's completion takes longer or shorter on average, split into waiting, communication and restarts and by the
number of GPUs; how many jobs more than with the other policy are left at each time (the sum of that over time is the difference);
and the decisions that the slower jobs trace back to, each with its moment: the wait that was longer, what it began with and who
got the GPUs, the place that was worse, or the restarts. A trace is one of the simulator's, or a file of cluster-sim
(benchmarks.authors). A column is one of benchmarks.protocol; of a generated one the first trace.
"""

import argparse
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.authors import line, read_jobs, signed, table
from benchmarks.authors_figures import RATIOS
from benchmarks.policies import BASE, CLUSTERS, MODELS, NETWORKS, SIX
from benchmarks.protocol.columns import BY_NAME
from kompakt_core.errors import InvalidInput
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.figures import summarize
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.simulation import FinishedJob, SimulationResult, simulate
from kompakt_simulator.traces.reading import load_trace
from kompakt_simulator.world import Stretch

BLIND = "fifo", "fifo-skip", "las", "tiresias", "gandiva", "dally", "no-wait", "never-relax"
HOUR = 3_600_000
STEPS = 12  # lines of the course


@dataclass(frozen=True, slots=True)
class TracedLoss:
    """A decision, and the milliseconds that the job it befell ends later for it than with the other policy."""

    kind: str
    at: int
    number: int
    cost: int
    of: str = ""


def tracedback(ours: SimulationResult, other: SimulationResult, shape: ClusterShape) -> list[TracedLoss]:
    """For each job that ends later, the decision behind the larger part of that."""
    stretches: dict[int, list[Stretch]] = defaultdict(list)
    for one in ours.stretches:
        stretches[one.number].append(one)
    before = {done.job.number: done for done in other.finished}
    later = ((done, before[done.job.number]) for done in ours.finished if done.end > before[done.job.number].end)
    return [_decision(done, than, stretches, shape) for done, than in later]


def _decision(
    done: FinishedJob, than: FinishedJob, stretches: Mapping[int, Sequence[Stretch]], shape: ClusterShape
) -> TracedLoss:
    number, cost, own = done.job.number, done.end - than.end, stretches[done.job.number]
    if done.restart - than.restart > cost / 2:
        return TracedLoss("restarted", own[0].end, number, cost)
    if done.comm - than.comm > cost / 2:
        worst = max(own, key=lambda one: (one.end - one.start) * _spread(one, shape))
        return TracedLoss(f"placed at level {shape.level_of(worst.gpus).lower()}", worst.start, number, cost)
    ends = [done.job.submit, *(one.end for one in own)]
    length, begun = max((one.start - end, end) for one, end in zip(own, ends, strict=False))
    if begun == done.job.submit:
        busy = sum(one.gpus.bit_count() for many in stretches.values() for one in many if one.start <= begun < one.end)
        held = "waited for its best level" if shape.gpus - busy >= done.job.gpus else "found no room"
        return TracedLoss(f"{held} at its submission", begun, number, cost)
    lost = next(one.gpus for one in own if one.end == begun)
    takers = [one for many in stretches.values() for one in many if begun <= one.start < begun + length and one.gpus & lost]
    taker = min(takers, key=lambda one: (one.start, one.number), default=None)
    gone = "" if taker is None else f"for job {taker.number} of {taker.gpus.bit_count()} GPUs"
    return TracedLoss("stopped", begun, number, cost, gone)


def _spread(one: Stretch, shape: ClusterShape) -> int:
    return 1 + [level for level, _ in shape.levels.sizes].index(shape.level_of(one.gpus))


def course(ours: SimulationResult, other: SimulationResult) -> list[tuple[int, int, int]]:
    """(time, jobs left, jobs left with the other policy) in even steps until the last has ended."""
    ends = [sorted(done.end for done in outcome.finished) for outcome in (ours, other)]
    last = max(each[-1] for each in ends)
    times = [last * step // STEPS for step in range(1, STEPS)]
    left = [[len(each) - bisect_right(each, at) for at in times] for each in ends]
    return list(zip(times, *left, strict=True))


def parts(ours: SimulationResult, other: SimulationResult) -> dict[str, list[float]]:
    """Milliseconds a job, averaged over all jobs: in all, waiting, communication, restarts; of all jobs and of each size."""
    found: dict[str, list[float]] = {}
    before = {done.job.number: done for done in other.finished}
    for done in ours.finished:
        than = before[done.job.number]
        waits = (done.end - done.held) - (than.end - than.held)
        each = done.end - than.end, waits, done.comm - than.comm, done.restart - than.restart
        for name in ("all", f"{done.job.gpus} GPUs"):
            sums = found.setdefault(name, [0.0] * len(each))
            found[name] = [total + value / len(ours.finished) for total, value in zip(sums, each, strict=True)]
    return found


def report(ours: SimulationResult, other: SimulationResult, shape: ClusterShape, top: int) -> None:
    """Four tables."""
    table("jobs", "ends later, s", "waiting", "communication", "restarts")
    for name, values in sorted(parts(ours, other).items(), key=lambda item: -item[1][0]):
        line(name, *(f"{value / 1000:+,.0f}" for value in values))
    table("hour", "jobs left", "with the other", "more")
    for at, left, than in course(ours, other):
        line(f"{at / HOUR:.0f}", str(left), str(than), f"{left - than:+d}")
    losses, jobs = tracedback(ours, other, shape), len(ours.finished)
    table("decision", "jobs", "s a job, over all jobs")
    costs: Counter[str] = Counter()
    for loss in losses:
        costs[loss.kind] += loss.cost
    gained = sum(done.end for done in ours.finished) - sum(done.end for done in other.finished) - costs.total()
    for kind, cost in costs.most_common():
        line(kind, str(sum(loss.kind == kind for loss in losses)), f"{cost / jobs / 1000:+,.0f}")
    line("what other jobs gain", str(jobs - len(losses)), f"{gained / jobs / 1000:+,.0f}")
    table("costliest", "at hour", "job", "ends later, h")
    for loss in sorted(losses, key=lambda loss: (-loss.cost, loss.number))[:top]:
        line(f"{loss.kind} {loss.of}".strip(), f"{loss.at / HOUR:.1f}", str(loss.number), f"{loss.cost / HOUR:.1f}")


def traced(name: str) -> tuple[Sequence[TraceJob], ClusterShape]:
    """The jobs of a trace, by name or by path, and the cluster that they run on. Raises InvalidInput."""
    if name in CLUSTERS:
        return load_trace(name).jobs, read_shape(CLUSTERS[name])
    try:
        return read_jobs(Path(name)), ClusterShape.grid(4, 4, 8)
    except InvalidInput as error:
        raise InvalidInput(f"{error}; or one of: {', '.join(CLUSTERS)}") from None


def on_network(name: str, network: str) -> tuple[Sequence[TraceJob], ClusterShape, Network]:
    """A trace on one of the networks of benchmarks.policies. Raises InvalidInput."""
    return (*traced(name), Network(NETWORKS[network].levels, {**MODELS, **RATIOS}, SIX))


def of_column(name: str) -> tuple[Sequence[TraceJob], ClusterShape, Network]:
    """The first trace of a column of the protocol."""
    column = BY_NAME[name]
    return column.trace(column.seeds()[0]), read_shape(column.cluster), column.network()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--trace", help=f"one of {', '.join(CLUSTERS)}, or a file of cluster-sim")
    what.add_argument("--column", choices=BY_NAME, metavar="NAME", help="of benchmarks.policies --protocol")
    parser.add_argument("--network", choices=NETWORKS, help="with --trace (flat)")
    parser.add_argument("--at-once", action="store_true", help="all jobs are submitted at 0")
    parser.add_argument("--declared", action="store_true", help="kompakt with declared totals, against kompakt without")
    parser.add_argument("--against", choices=BLIND, help="instead of the best policy that knows no durations")
    parser.add_argument("--top", type=int, default=10, help="decisions named one by one")
    given = parser.parse_args()
    if given.column and given.network:
        parser.error("--network: a column has its own")
    try:
        jobs, shape, network = of_column(given.column) if given.column else on_network(given.trace, given.network or "flat")
    except InvalidInput as error:
        parser.error(str(error))
    if given.at_once:
        jobs = [replace(job, submit=Milliseconds(0)) for job in jobs]

    def outcome(policy: str, setting: Setting) -> SimulationResult:
        return simulate(jobs, ClusterState.of(shape), POLICIES[policy], PLACEMENTS["levels"], replace(setting, network=network))

    ours = outcome("kompakt", replace(BASE, knowledge=Knowledge.DECLARED) if given.declared else BASE)
    if given.declared and given.against is None:
        others = {"kompakt": outcome("kompakt", BASE)}
    else:
        others = {policy: outcome(policy, BASE) for policy in ([given.against] if given.against else BLIND)}
    best = min(others, key=lambda policy: summarize(others[policy]).avg_jct_s)
    mine, than = summarize(ours).avg_jct_s, summarize(others[best]).avg_jct_s
    print(f"kompakt{' declared' * given.declared} {mine:,.0f} s, {best} {than:,.0f} s: {signed(mine, than)}")
    report(ours, others[best], shape, given.top)


if __name__ == "__main__":
    main()
