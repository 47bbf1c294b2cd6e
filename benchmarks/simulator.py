"""Time the simulator on a large trace and on shorter ones made of it, in processor seconds of its one thread, checks included.

    python -m benchmarks.simulator TRACE [--cluster 4x16x8] [--policy fifo-skip,srtf] [--parts 4] [--shorten thin] [--congested]

TRACE is a file the simulator reads. The usual one is `simulator/traces/philly.csv` of petuum/adaptdl, branch osdi21-artifact
(82,247 jobs). For each policy a line for 1/2^k of its jobs, k = parts-1 .. 0: events per second, how many jobs wait at a time
on average, and the exponent by which time grows from one to the next (n log n: barely above 1).

Shortened by `first`: the beginning of the trace, which may be quieter than its end, so that work grows faster than jobs. By
`thin`: every 2^k-th job, submitted at 2^k times the pace: as many jobs an hour, so that only the length differs.
Memory is the most that the process ever held: name one policy and one part for that of a single run.
"""

import argparse
import math
import resource
import time
from dataclasses import replace
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import Cluster
from kompakt_simulator.clusters import read_shape
from kompakt_simulator.network import Network
from kompakt_simulator.placements.table import PLACEMENTS
from kompakt_simulator.policies.table import POLICIES
from kompakt_simulator.reading import load_trace
from kompakt_simulator.setting import Setting
from kompakt_simulator.simulation import Outcome, simulate
from kompakt_simulator.trace import Job, Milliseconds

# The compute-to-communication ratios of six models, see benchmarks/policies.py.
CONGESTED = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 32}, unnamed=(0.6, 0.5, 0.3, 0.15, 0.08, 0.06))
HEADS: Final = ("policy", "jobs", "events", "stops", "waiting", "processor s", "events/s", "grows by", "MB")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--cluster", default="4x16x8")
    parser.add_argument("--policy", default="fifo-skip", help="comma-separated; dally:12:24 = with these timers, in leases")
    parser.add_argument("--placement", choices=list(PLACEMENTS), default="levels")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--shorten", choices=("first", "thin"), default="first")
    parser.add_argument("--congested", action="store_true", help="with a network: machine .05, rack 1, cluster 32")
    return parser.parse_args()


def shortened(jobs: tuple[Job, ...], how: str, part: int) -> list[Job]:
    """1/2^part of the jobs."""
    if how == "first":
        return list(jobs[: len(jobs) >> part])
    return [replace(job, submit=Milliseconds(job.submit >> part)) for job in jobs[:: 1 << part]]


def waiting(outcome: Outcome) -> float:
    """How many jobs wait at a time, on average until the last end."""
    waited = sum(done.end - done.job.submit - done.held for done in outcome.finished)
    return waited / max(done.end for done in outcome.finished)


def main() -> None:
    given = arguments()
    try:
        trace, cluster = load_trace(given.trace), Cluster.of(read_shape(given.cluster))
    except InvalidInput as error:
        raise SystemExit(str(error)) from error
    setting = Setting(network=CONGESTED) if given.congested else Setting()
    print(f"{len(trace.jobs)} jobs on {given.cluster}, {given.placement}, {setting.network.levels or 'no network'}\n")
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for label in given.policy.split(","):
        name, *timers = label.split(":")
        chosen = replace(setting, timers=(float(timers[0]), float(timers[1]))) if timers else setting
        before: tuple[int, float] | None = None
        for part in reversed(range(given.parts)):
            jobs = shortened(trace.jobs, given.shorten, part)
            began = time.process_time()
            outcome = simulate(jobs, cluster, POLICIES[name], PLACEMENTS[given.placement], chosen)
            took = time.process_time() - began
            print(line(label, jobs, outcome, took, before), flush=True)
            before = len(jobs), took


def line(label: str, jobs: list[Job], outcome: Outcome, took: float, before: tuple[int, float] | None) -> str:
    """One run as a line of the table; `before`: jobs and seconds of the run before it."""
    growth = "" if before is None else f"n^{math.log(took / before[1]) / math.log(len(jobs) / before[0]):.2f}"
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    counts = f"{len(jobs):,} | {outcome.events:,} | {outcome.preemptions:,} | {waiting(outcome):,.0f}"
    return f"| {label} | {counts} | {took:.1f} | {outcome.events / took:,.0f} | {growth} | {resident:.0f} |"


if __name__ == "__main__":
    main()
