"""Time the simulator on a large trace, in processor seconds of its one thread, invariant checks included.

    python -m benchmarks.simulation TRACE [--machines 64] [--gpus 8] [--policy fifo-skip] [--placement count]

TRACE is a file the simulator reads. The usual one is `simulator/traces/philly.csv` of petuum/adaptdl, branch osdi21-artifact
(82,247 jobs), on 4 racks x 16 machines x 8 GPUs.
"""

import argparse
import time

from kompakt_core.errors import InvalidInput
from kompakt_simulator.cluster import Cluster
from kompakt_simulator.placements.table import PLACEMENTS
from kompakt_simulator.policies.table import POLICIES
from kompakt_simulator.reading import load_trace
from kompakt_simulator.simulation import simulate
from kompakt_simulator.summary import summarize


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--machines", type=int, default=64)
    parser.add_argument("--gpus", type=int, default=8, help="of each machine")
    parser.add_argument("--policy", choices=list(POLICIES), default="fifo-skip")
    parser.add_argument("--placement", choices=list(PLACEMENTS), default="count")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    started = time.process_time()
    try:
        trace = load_trace(given.trace)
        cluster = Cluster.empty(given.machines, given.gpus)
    except InvalidInput as error:
        raise SystemExit(str(error)) from error
    read = time.process_time()
    outcome = simulate(trace.jobs, cluster, POLICIES[given.policy], PLACEMENTS[given.placement])
    done = time.process_time()
    summary = summarize(outcome)
    print(f"{given.trace}: {len(trace.jobs)} jobs on {given.machines} x {given.gpus} GPUs, {given.policy}, {given.placement}")
    print(f"read {read - started:.1f} s, simulated {done - read:.1f} s of processor time on one core")
    print(f"average JCT {summary.average_jct:.1f} s, makespan {summary.makespan:.0f} s, dropped {summary.dropped}")


if __name__ == "__main__":
    main()
