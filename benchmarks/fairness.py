"""How much one namespace's many jobs delay another namespace's: `python -m benchmarks.fairness`.

    python -m benchmarks.fairness                          # a crowd of 200 jobs of 64 workers
    python -m benchmarks.fairness --crowd 20 --seconds 30

A quiet namespace sends one TrainingJob of one worker after the other, each removed once it is bound: first alone, then while a
crowd of jobs that no node has room for, sent at once in another namespace, has its pods made. Printed is the time from sending
the request until the watch shows the worker with a node, in both parts, and the difference of their 99th percentiles.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from kubernetes import client

from benchmarks.path import NODE_GPUS, Kind, Shape, Timing, line, measure, own_namespace, say, training_jobs, whole_cluster
from benchmarks.pod_times import CREATED, PodTimes, watching
from kompakt_core.contract import LABEL_JOB_NAME

NODES = 2
ONE = Shape(1, 1)
PARTS: Mapping[str, Callable[[Timing], float]] = {
    "pod made": lambda one: one.created,
    "gate gone": lambda one: one.released,
    "bound": lambda one: one.bound,
}


def quiet(times: PodTimes, kind: Kind, until: Callable[[int], bool]) -> list[Timing]:
    """One job after the other. `until` is told how many are done."""
    found: list[Timing] = []
    while not until(len(found)):
        found.append(measure(times, kind, ONE.workers, f"{kind.prefix}-{time.monotonic_ns()}"))
    return found


def p99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[-1]


def beside(api: client.ApiClient, times: PodTimes, kind: Kind, crowd: int, shape: Shape, seconds: float) -> list[Timing]:
    """Beside the crowd, until its pods are made or that time is over."""
    with own_namespace(api) as namespace, watching(api, namespace, (LABEL_JOB_NAME,)) as theirs:
        many, names = training_jobs(api, namespace, shape), [f"crowd-{number}" for number in range(crowd)]
        end = time.monotonic() + seconds
        for name in names:
            many.create(name)

        def whole() -> int:
            return sum(theirs.last(name, shape.workers, CREATED) is not None for name in names)

        found = quiet(times, kind, lambda done: done >= 2 and (time.monotonic() > end or whole() == crowd))
        print(f"all pods of {whole()} of {crowd} jobs of the crowd were made meanwhile")
        for name in names:
            many.delete(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crowd", type=int, default=200, help="jobs sent at once")
    parser.add_argument("--workers", type=int, default=64, help="pods of each of them")
    parser.add_argument("--alone", type=int, default=30, help="jobs of the quiet namespace before the crowd comes")
    parser.add_argument("--seconds", type=float, default=300.0, help="the longest that the crowd is watched")
    given = parser.parse_args()
    if given.crowd < 1 or given.alone < 2 or given.workers <= NODES * NODE_GPUS:
        parser.error(f"--crowd must be at least 1, --alone 2, --workers more than {NODES * NODE_GPUS}: none may find room")
    with (
        whole_cluster(NODES, say) as cluster,
        own_namespace(cluster.api) as namespace,
        watching(cluster.api, namespace, (LABEL_JOB_NAME,)) as times,
    ):
        kind, shape = training_jobs(cluster.api, namespace, ONE), Shape(given.workers, 1)
        quiet(times, kind, lambda done: done == 1)
        alone = quiet(times, kind, lambda done: done == given.alone)
        crowded = beside(cluster.api, times, kind, given.crowd, shape, given.seconds)
    print(
        f"a quiet namespace's jobs of one worker: {len(alone)} alone, {len(crowded)} beside {given.crowd} x {given.workers} pods"
    )
    for name, moment in PARTS.items():
        print(line(f"alone: apply -> {name}", [moment(one) for one in alone]))
        print(line(f"beside the crowd: apply -> {name}", [moment(one) for one in crowded]))
    delay = p99([one.bound for one in crowded]) - p99([one.bound for one in alone])
    print(f"the crowd delays by {delay:.2f} s (difference of the 99th percentiles, apply -> bound)")


if __name__ == "__main__":
    main()
