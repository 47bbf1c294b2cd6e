"""Time the simulator on a large trace and on its beginnings, in processor seconds of its one thread, checks included.

    python -m benchmarks.simulator TRACE [--cluster 4x16x8] [--policy fifo-skip,srtf] [--parts 4] [--congested]

TRACE is a file the simulator reads. The usual one is `simulator/traces/philly.csv` of petuum/adaptdl, branch osdi21-artifact
(82,247 jobs). For each policy: the first 1/2^k of the trace for k = parts-1 .. 0, events per second, and the exponent by
which time grows from one to the next (n log n: barely above 1; a trace's second half may be busier than its first).
"""

import argparse
import math
import resource
import time

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import Cluster
from kompakt_simulator.clusters import read_shape
from kompakt_simulator.network import Network
from kompakt_simulator.placements.table import PLACEMENTS
from kompakt_simulator.policies.table import POLICIES
from kompakt_simulator.reading import load_trace
from kompakt_simulator.setting import Setting
from kompakt_simulator.simulation import simulate

# The compute-to-communication ratios of six models, see benchmarks/policies.py.
CONGESTED = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 32}, unnamed=(0.6, 0.5, 0.3, 0.15, 0.08, 0.06))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--cluster", default="4x16x8")
    parser.add_argument("--policy", default="fifo-skip", help="comma-separated")
    parser.add_argument("--placement", choices=list(PLACEMENTS), default="levels")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--congested", action="store_true", help="with a network: machine .05, rack 1, cluster 32")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    try:
        trace, cluster = load_trace(given.trace), Cluster.of(read_shape(given.cluster))
    except InvalidInput as error:
        raise SystemExit(str(error)) from error
    setting = Setting(network=CONGESTED) if given.congested else Setting()
    print(
        f"{given.trace}: {len(trace.jobs)} jobs on {given.cluster}, {given.placement}, {setting.network.levels or 'no network'}"
    )
    for name in given.policy.split(","):
        before: tuple[int, float] | None = None
        for part in reversed(range(given.parts)):
            jobs = trace.jobs[: len(trace.jobs) >> part]
            began = time.process_time()
            outcome = simulate(jobs, cluster, POLICIES[name], PLACEMENTS[given.placement], setting)
            took = time.process_time() - began
            growth = "" if before is None else f", grows by n^{math.log(took / before[1]) / math.log(len(jobs) / before[0]):.2f}"
            print(
                f"{name}: {len(jobs)} jobs, {outcome.events} events, {took:.1f} s, {outcome.events / took:.0f} events/s{growth}",
                flush=True,
            )
            before = len(jobs), took
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB resident")


if __name__ == "__main__":
    main()
