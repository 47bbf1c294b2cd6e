"""How long a gang needs to be back after something was lost, beside a plain Job that loses a pod, on simulated nodes.

    python -m benchmarks.lifecycle                # brings up a cluster of its own, without root
    python -m benchmarks.lifecycle --rounds 20

Each round: a worker deleted, an unhealthy GPU, suspension, resumption; then a pod of a plain Job deleted. Times are from request
until the API server shows all pods running (suspended: none left), read every 20 ms. Simulated pods start and end at
once, so what is measured is Kubernetes and kompakt, not images or the grace period. The first placement: benchmarks.path.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from kubernetes import client

from benchmarks.path import line, own_cluster, own_namespace, say
from kompakt_core.contract import API_VERSION, GROUP, JOB_KIND, JOB_PLURAL, LABEL_JOB_NAME, VERSION, bound_gpus, counts
from tools.kube.simnodes import SICK_ANNOTATION

PATIENCE = 60.0
STEP = 0.02
NODES = 4


class World:
    """One gang and one plain Job in a namespace, and the four things that happen to them."""

    def __init__(self, api: client.ApiClient, namespace: str, workers: int) -> None:
        self._core, self._custom, self._batch = client.CoreV1Api(api), client.CustomObjectsApi(api), client.BatchV1Api(api)
        self._namespace, self._workers = namespace, workers

    def start(self) -> None:
        """Both kinds of job running."""
        container = {"name": "main", "image": "simulated"}
        role = {
            "name": "worker",
            "replicas": self._workers,
            "gpusPerReplica": 4,
            "template": {"spec": {"containers": [container]}},
        }
        spec = {"roles": [role], "communication": {"pattern": "Ring"}, "runPolicy": {"backoffLimit": 1000}}
        body = {"apiVersion": API_VERSION, "kind": JOB_KIND, "metadata": {"name": "gang"}, "spec": spec}
        self._custom.create_namespaced_custom_object(GROUP, VERSION, self._namespace, JOB_PLURAL, body)
        pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        plain = {"parallelism": self._workers, "completions": self._workers, "backoffLimit": 1000, "template": pod}
        self._batch.create_namespaced_job(self._namespace, {"metadata": {"name": "plain"}, "spec": plain})
        self._until(lambda: self._gang_runs("") and self._plain_runs(""))

    def worker_deleted(self) -> float:
        lost = self._pods(f"{LABEL_JOB_NAME}=gang")[0]
        return self._timed(
            lambda: self._core.delete_namespaced_pod(lost.metadata.name, self._namespace),
            lambda: self._gang_runs(lost.metadata.uid),
        )

    def gpu_sick(self) -> float:
        lost = self._pods(f"{LABEL_JOB_NAME}=gang")[0]
        index = counts.encode(bound_gpus.indices(lost.metadata.annotations)[0])
        try:
            return self._timed(lambda: self._mark(lost.spec.node_name, index), lambda: self._gang_runs(lost.metadata.uid))
        finally:
            self._mark(lost.spec.node_name, None)

    def suspended(self) -> float:
        return self._timed(lambda: self._suspend(True), lambda: not self._pods(f"{LABEL_JOB_NAME}=gang"))

    def resumed(self) -> float:
        return self._timed(lambda: self._suspend(False), lambda: self._gang_runs(""))

    def plain_pod_deleted(self) -> float:
        lost = self._pods("batch.kubernetes.io/job-name=plain")[0]
        return self._timed(
            lambda: self._core.delete_namespaced_pod(lost.metadata.name, self._namespace),
            lambda: self._plain_runs(lost.metadata.uid),
        )

    def _pods(self, selector: str) -> list[Any]:
        return list(self._core.list_namespaced_pod(self._namespace, label_selector=selector).items)

    def _gang_runs(self, gone: str) -> bool:
        return self._all_run(self._pods(f"{LABEL_JOB_NAME}=gang"), gone)

    def _plain_runs(self, gone: str) -> bool:
        return self._all_run(self._pods("batch.kubernetes.io/job-name=plain"), gone)

    def _all_run(self, pods: Sequence[Any], gone: str) -> bool:
        up = [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]
        return len(up) == len(pods) == self._workers and gone not in {pod.metadata.uid for pod in pods}

    def _mark(self, node: str, indices: str | None) -> None:
        self._core.patch_node(node, {"metadata": {"annotations": {SICK_ANNOTATION: indices}}})

    def _suspend(self, wanted: bool) -> None:
        body = {"spec": {"suspend": wanted}}
        self._custom.patch_namespaced_custom_object(GROUP, VERSION, self._namespace, JOB_PLURAL, "gang", body)

    def _timed(self, request: Callable[[], object], done: Callable[[], bool]) -> float:
        began = time.monotonic()
        request()
        self._until(done)
        return time.monotonic() - began

    def _until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end:
                raise SystemExit(f"not back after {PATIENCE:.0f} s")
            time.sleep(STEP)


def measure(api: client.ApiClient, rounds: int, workers: int) -> dict[str, list[float]]:
    """Seconds by what happened. One round goes first and does not count."""
    found: dict[str, list[float]] = defaultdict(list)
    with own_namespace(api) as namespace:
        world = World(api, namespace, workers)
        world.start()
        for number in range(rounds + 1):
            times = {
                "worker deleted -> whole gang runs again": world.worker_deleted(),
                "GPU unhealthy -> whole gang runs elsewhere": world.gpu_sick(),
                "suspended -> no pods": world.suspended(),
                "resumed -> gang runs": world.resumed(),
                "plain Job: pod deleted -> all run again": world.plain_pod_deleted(),
            }
            for name, seconds in times.items():
                found[name] += [seconds] if number else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2, help="pods of the gang and of the plain Job")
    given = parser.parse_args()
    if given.rounds < 1 or not 1 <= given.workers <= NODES:
        parser.error(f"--rounds must be at least 1, --workers from 1 to {NODES}")
    with own_cluster(NODES, say) as api:
        found = measure(api, given.rounds, given.workers)
    print(f"{given.rounds} rounds, {given.workers} pods each")
    for name, seconds in found.items():
        print(line(name, seconds))


if __name__ == "__main__":
    main()
