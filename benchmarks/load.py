"""Thousands of TrainingJobs at once, on simulated nodes: the operator's memory, its looks, and how soon a burst is bound.

    python -m benchmarks.load                              # 5,000 jobs, of which 200 run with 2,000 pods; then 100 at once
    python -m benchmarks.load --jobs 500 --running 20 --pods 200 --burst 20 --hold 0

The jobs that do not run are suspended; the operator looks at each of them every five minutes all the same. Its memory is read
from /proc; how long its looks take, from its own histogram; `--hold` seconds pass in between, so that one such round is among
them. Then TrainingJobs come at once, and after them plain Jobs of the default scheduler, as many with as many pods: for each job
the time from sending its request until the watch shows its last pod with a node.
"""

import argparse
import os
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubernetes import client

from benchmarks.path import (
    NODE_GPUS,
    PLAIN_LABEL,
    Kind,
    Shape,
    check_gpus,
    line,
    own_namespace,
    plain_jobs,
    say,
    training_jobs,
    whole_cluster,
)
from benchmarks.pod_times import BOUND, watching
from kompakt_core.contract import GROUP, JOB_PLURAL, LABEL_JOB_NAME, VERSION
from tools.kube.session import Cluster

PATIENCE = 900.0
LOOK = 5.0  # seconds between two looks at all jobs, each of which costs the API server some work
PAGE = 500
BURST = Shape(2, 4)  # one node's GPUs


class Crowd:
    """The jobs that are there all the time."""

    def __init__(self, cluster: Cluster, namespace: str, jobs: int, running: int, pods: int) -> None:
        self._custom = client.CustomObjectsApi(cluster.api)
        self._namespace, self._jobs, self._running = namespace, jobs, running
        shape = Shape(pods // running, 1)
        self._kind, self._rest = (
            training_jobs(cluster.api, namespace, shape),
            training_jobs(cluster.api, namespace, shape, suspend=True),
        )

    def fill(self) -> float:
        """Create them all; seconds until the last of those that run runs and the others are Suspended."""
        for number in range(self._jobs - self._running):
            self._rest.create(f"rest-{number}")
        began = time.monotonic()
        for number in range(self._running):
            self._kind.create(f"run-{number}")
        wanted = {"Running": self._running, "Suspended": self._jobs - self._running}
        while (found := self._phases()) != {phase: count for phase, count in wanted.items() if count}:
            if time.monotonic() > began + PATIENCE:
                raise SystemExit(f"after {PATIENCE:.0f} s: {found}, not {wanted}")
            time.sleep(LOOK)
        return time.monotonic() - began

    def _phases(self) -> dict[str, int]:
        found: dict[str, int] = {}
        token: str | None = ""
        while token is not None:
            page = self._custom.list_namespaced_custom_object(
                GROUP, VERSION, self._namespace, JOB_PLURAL, limit=PAGE, _continue=token
            )
            for job in page["items"]:
                phase = (job.get("status") or {}).get("phase", "none")
                found[phase] = found.get(phase, 0) + 1
            token = page["metadata"].get("continue") or None
        return found


def burst(cluster: Cluster, kind: Kind, namespace: str, label: str, jobs: int) -> list[float]:
    """Seconds of each of so many jobs that come at once. Raises SystemExit when one is lost."""
    began: dict[str, float] = {}
    with watching(cluster.api, namespace, (label,)) as times:
        for number in range(jobs):
            name = f"{kind.prefix}-burst-{number}"
            began[name] = time.monotonic()
            kind.create(name)
        if lost := [name for name in began if not times.wait_until_bound(name, BURST.workers, PATIENCE)]:
            raise SystemExit(f"{len(lost)} of {jobs} jobs are not bound after {PATIENCE:.0f} s; first: {times.seen_of(lost[0])}")
        return [(times.last(name, BURST.workers, BOUND) or 0.0) - start for name, start in began.items()]


def memory(cluster: Cluster) -> tuple[float, float]:
    """MB that the operator's process takes now, and took at most."""
    loop = cluster.plane.processes["operator-0"].pid
    pid = Path(f"/proc/{loop}/task/{loop}/children").read_text().split()[0]
    text = Path(f"/proc/{pid}/status").read_text()
    now, most = (int(re.findall(rf"{field}:\s+(\d+) kB", text)[0]) for field in ("VmRSS", "VmHWM"))
    return now / 1e3, most / 1e3


def buckets(text: str) -> dict[float, int]:
    """The operator's histogram of looks: how many took at most so many seconds."""
    found = re.findall(r'kompakt_operator_look_seconds_bucket\{le="([^"]+)"\} (\d+)', text)
    return {float(bound): int(count) for bound, count in found}


def quantile(since: Mapping[float, int], until: Mapping[float, int], share: float) -> tuple[float, float]:
    """Between which bounds of the histogram, in seconds, that share of the looks between two readings lies."""
    counts = {bound: until[bound] - since.get(bound, 0) for bound in sorted(until)}
    wanted, below = share * max(counts.values()), 0.0
    for bound, count in counts.items():
        if count >= wanted:
            return below, bound
        below = bound
    raise AssertionError("the last bound holds them all")


def report(name: str, cluster: Cluster, since: Mapping[float, int]) -> dict[float, int]:
    """Print memory and looks since the last reading; answers this reading."""
    now, most = memory(cluster)
    flag = next(flag for flag in cluster.components["operator-0"].argv if flag.startswith("--health-port="))
    until = buckets(_metrics(int(flag.partition("=")[2])))
    looks = max(until.values()) - max(since.values(), default=0)
    spread = ", ".join(
        f"p{share * 100:.0f} in {low:g} to {high:g} s" for share in (0.5, 0.99) for low, high in [quantile(since, until, share)]
    )
    print(
        f"{name}: operator {now:.0f} MB, at most {most:.0f} MB so far; {looks} looks, {spread}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return until


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def run(cluster: Cluster, given: argparse.Namespace) -> None:
    with own_namespace(cluster.api) as namespace:
        seconds = Crowd(cluster, namespace, given.jobs, given.running, given.pods).fill()
        print(
            f"{given.jobs} jobs; {given.running} of them run with {given.pods} pods {seconds:.0f} s after their first was applied"
        )
        seen = report("filled", cluster, {})
        if given.hold:
            time.sleep(given.hold)
            seen = report(f"{given.hold} s later", cluster, seen)
        bursts(cluster, given.burst)
        report("after the bursts", cluster, seen)
        check_gpus(_gpu_pods(cluster, namespace), given.pods)


def bursts(cluster: Cluster, jobs: int) -> None:
    """Both kinds, each in a namespace of its own."""
    for make, label in ((training_jobs, LABEL_JOB_NAME), (plain_jobs, PLAIN_LABEL)):
        with own_namespace(cluster.api) as namespace:
            kind = make(cluster.api, namespace, BURST)
            times = burst(cluster, kind, namespace, label, jobs)
            print(line(f"{jobs} at once, {kind.name}: apply -> bound", times), f" load {os.getloadavg()[0]:.1f}", flush=True)
            if kind.prefix == "gang":
                check_gpus(_gpu_pods(cluster, namespace), jobs * BURST.workers * BURST.gpus)


def _gpu_pods(cluster: Cluster, namespace: str) -> Sequence[Any]:
    return list(cluster.core.list_namespaced_pod(namespace).items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000, help="TrainingJobs that are there")
    parser.add_argument("--running", type=int, default=200, help="of these run")
    parser.add_argument("--pods", type=int, default=2000, help="of those that run together, with one GPU each")
    parser.add_argument("--burst", type=int, default=100, help="jobs that come at once, each with the GPUs of one node")
    parser.add_argument("--hold", type=int, default=330, help="seconds between filling and burst")
    given = parser.parse_args()
    if not 0 < given.running <= given.jobs or given.pods % given.running or given.burst < 1 or given.hold < 0:
        parser.error("--running must be from 1 to --jobs and divide --pods, --burst at least 1, --hold at least 0")
    nodes = -(-given.pods // NODE_GPUS) + given.burst
    with whole_cluster(nodes, say) as cluster:
        run(cluster, given)


if __name__ == "__main__":
    main()
