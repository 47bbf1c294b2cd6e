"""How long from applying a TrainingJob until all its pods are bound, with GPUs by ResourceClaims, beside a device plugin.

    python -m benchmarks.claims                      # two clusters of simulated nodes for itself, without root
    python -m benchmarks.claims --jobs 250 --restarts 25   # chosen GPUs beside given ones

The two clusters take turns, job by job, on the same machine; times are read as in benchmarks/path.py. With --restarts the devices
that kube-scheduler allocated to each pod are compared with the GPUs of its plan. Nothing prepares devices on simulated nodes:
what kubelet and a driver take is not in these times.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from benchmarks.path import (
    Kind,
    Shape,
    Timing,
    line,
    measure,
    nodes_for,
    own_namespace,
    say,
    simulated_cluster,
    training_jobs,
    whole_cluster,
)
from benchmarks.pod_times import PodTimes, watching
from kompakt_core.contract import LABEL_JOB_NAME, planned_seat
from tests.support.cluster import resource_slices
from tools.kube.session import ClusterSession, eventually

PLUGIN, CLAIMS = "by a device plugin", "by ResourceClaims"
PLANNER: Final = "planner-0"


@contextmanager
def claiming_cluster(nodes: int) -> Iterator[ClusterSession]:
    """A cluster without a scheduler of ours, and a driver's devices on every node."""
    with simulated_cluster(nodes, say) as cluster:
        cluster.parts.install({"allocation": "ResourceClaims"})
        cluster.start(cluster.parts.simulated_plugins())
        resource_slices.publish(cluster)
        cluster.start(
            cluster.parts.planner(PLANNER), cluster.parts.operator("operator-0", "--claims-scheduler=default-scheduler")
        )
        yield cluster


class Side:
    """One of the two clusters, with what has been measured in it."""

    def __init__(self, cluster: ClusterSession, namespace: str, times: PodTimes, shape: Shape) -> None:
        self.cluster, self.namespace, self.times, self.shape = cluster, namespace, times, shape
        self.kind: Kind = training_jobs(cluster.api, namespace, shape)
        self.timings: list[Timing] = []

    def one(self, number: int) -> None:
        timing = measure(self.times, self.kind, self.shape.workers, f"{self.kind.prefix}-{number}")
        if number > 0:  # the first warms up
            self.timings.append(timing)


@contextmanager
def side(cluster: ClusterSession, shape: Shape) -> Iterator[Side]:
    with own_namespace(cluster.api) as namespace, watching(cluster.api, namespace, (LABEL_JOB_NAME,)) as times:
        yield Side(cluster, namespace, times, shape)


def in_turn(jobs: int, shape: Shape) -> dict[str, list[Timing]]:
    """The timings of both, by how GPUs come."""
    with ExitStack() as both:
        plugin, claims = (
            both.enter_context(side(both.enter_context(cluster), shape))
            for cluster in (whole_cluster(nodes_for(0, shape), say), claiming_cluster(nodes_for(0, shape)))
        )
        for number in range(jobs + 1):
            plugin.one(number)
            claims.one(number)
        return {PLUGIN: plugin.timings, CLAIMS: claims.timings}


def compared(cluster: ClusterSession, namespace: str) -> tuple[int, int]:
    """Of all pods with a claim: how many there are, and how many were given exactly the GPUs of their plan."""
    claims = resource_slices.claims(cluster, namespace)
    pods: list[Any] = cluster.core.list_namespaced_pod(namespace).items
    chosen = [(set(planned_seat.gpus(pod.metadata.annotations)), claims[pod.metadata.name]) for pod in pods]
    return len(chosen), sum(bool(gpus) and gpus == resource_slices.allocated(cluster, claim) for gpus, claim in chosen)


def chosen_and_given(jobs: int, restarts: int, shape: Shape) -> tuple[int, int]:
    """As `compared`, over that many jobs one after the other, while the planner is killed so often."""
    total = right = 0
    with claiming_cluster(nodes_for(0, shape)) as cluster, side(cluster, shape) as one:
        for number in range(jobs):
            name = f"chosen-{number}"
            one.kind.create(name)
            if restarts and number % max(1, jobs // restarts) == 0:
                cluster.crash(PLANNER)
            if not one.times.wait_until_bound(name, shape.workers, 120.0):
                raise SystemExit(f"{name}: not bound after 120 s; seen: {one.times.seen_of(name)}")
            pods, same = compared(cluster, one.namespace)
            total, right = total + pods, right + same
            one.kind.delete(name)
            one.times.wait_until_gone(name, 60.0)
            eventually(lambda: not resource_slices.claims(cluster, one.namespace), f"the claims of {name} are gone")
    return total, right


def report(timings: dict[str, list[Timing]]) -> None:
    for how, measured in timings.items():
        print(line(f"GPUs {how}: apply -> all pods bound", [timing.bound for timing in measured]))
    medians = {how: statistics.median(timing.bound for timing in measured) for how, measured in timings.items()}
    print(f"p50 {CLAIMS} / {PLUGIN}: {medians[CLAIMS] / medians[PLUGIN]:.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20, help="jobs of each kind")
    parser.add_argument("--workers", type=int, default=2, help="pods of each job")
    parser.add_argument("--gpus", type=int, default=4, help="GPUs of each pod")
    parser.add_argument("--restarts", type=int, default=0, help="compare chosen with given GPUs, and kill the planner so often")
    given = parser.parse_args(arguments)
    if given.jobs < 1 or given.workers < 1 or given.gpus < 1 or given.restarts < 0:
        parser.error("--jobs, --workers and --gpus must be at least 1, --restarts at least 0")
    shape = Shape(given.workers, given.gpus)
    if given.restarts:
        pods, right = chosen_and_given(given.jobs, given.restarts, shape)
        print(f"{pods} pods, the planner killed {given.restarts} times: {right} were given exactly the GPUs of their plan")
        return
    print(f"{given.jobs} jobs of each kind in turn, {given.workers} pods each, {given.gpus} GPUs per pod")
    report(in_turn(given.jobs, shape))


if __name__ == "__main__":
    main()
