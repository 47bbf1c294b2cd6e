"""Thousands of TrainingJobs at once, on simulated nodes: the operator's memory, how long it reconciles, how soon pods are bound.

    python -m benchmarks.load                              # 5,000 jobs, of which 200 run with 2,000 pods; then 100 at once
    python -m benchmarks.load --jobs 500 --running 20 --pods 200 --burst 20 --hold 0

The jobs that do not run are suspended; the operator goes over all of them every five minutes all the same. Its memory is read
from /proc; how long it reconciles, from its own histogram; `--hold` seconds pass in between, so that one such round is among
them. Then TrainingJobs come at once, and after them plain Jobs of the default scheduler, as many with as many pods: for each job
the time from sending its request until the watch shows its last pod with a node. After each part: the processor time of every
program and what the API server was asked for. Nothing is given up while anything still changes within ten minutes.
"""

import argparse
import json
import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.costs import costs, fetch
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
from kompakt_core.contract import API_VERSION, JOB_PLURAL, LABEL_JOB_NAME
from tools.kube.parts import asking_headers
from tools.kube.session import ClusterSession

PATIENCE = 600.0  # seconds without any progress
LOOK = 5.0  # seconds between two looks at all jobs
TOLD = 60.0  # seconds between two lines about how far it is
# The columns that `kubectl get` prints, from the API server's cache: of 5,000 jobs whole objects would be 30 MB for each look.
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
BURST = Shape(2, 4)  # one node's GPUs


class Crowd:
    """The jobs that are there all the time."""

    def __init__(self, cluster: ClusterSession, namespace: str, jobs: int, running: int, pods: int) -> None:
        self._cluster, self._namespace, self._jobs, self._running = cluster, namespace, jobs, running
        shape = Shape(pods // running, 1)
        self._kind = training_jobs(cluster.api, namespace, shape)
        self._rest = training_jobs(cluster.api, namespace, shape, suspend=True)

    def rest(self) -> float:
        """Create those that do not run; seconds until the last is Suspended."""
        began = time.monotonic()
        for number in range(self._jobs - self._running):
            self._rest.create(f"rest-{number}")
        self._await({"Suspended": self._jobs - self._running})
        return time.monotonic() - began

    def run(self) -> float:
        """Create those that run; seconds until the last does, to within the time between two looks."""
        began = time.monotonic()
        for number in range(self._running):
            self._kind.create(f"run-{number}")
        self._await({"Running": self._running, "Suspended": self._jobs - self._running})
        return time.monotonic() - began

    def _await(self, wanted: Mapping[str, int]) -> None:
        waiting, goal = Waiting(), {phase: count for phase, count in wanted.items() if count}
        while (found := self._phases()) != goal:
            waiting.on(f"{dict(found)} on the way to {goal}")
            time.sleep(LOOK)

    def _phases(self) -> Counter[str]:
        path = f"/apis/{API_VERSION}/namespaces/{self._namespace}/{JOB_PLURAL}?includeObject=None&resourceVersion=0"
        try:
            return phases(fetch(self._cluster, path, TABLE))
        except OSError as error:  # an API server that is too busy to answer: that is what is waited for
            return Counter({f"no answer: {error}": 1})


class Waiting:
    """Tells how far it is now and then; gives up when nothing changes."""

    def __init__(self) -> None:
        self._began = self._changed = self._told = time.monotonic()
        self._last = ""

    def on(self, state: str) -> None:
        """Raises SystemExit when the state has been the same for too long."""
        now = time.monotonic()
        if state != self._last:
            self._last, self._changed = state, now
        if now > self._changed + PATIENCE:
            raise SystemExit(f"nothing changed for {PATIENCE:.0f} s: {state}")
        if now > self._told + TOLD:
            self._told = now
            say(f"{now - self._began:.0f} s: {state}; load {os.getloadavg()[0]:.1f}")


def phases(text: str) -> Counter[str]:
    """Jobs by phase, from a table as `kubectl get` prints it."""
    table = json.loads(text)
    column = [one["name"] for one in table["columnDefinitions"]].index("Phase")
    return Counter(str(row["cells"][column] or "none") for row in table["rows"] or ())


def burst(cluster: ClusterSession, kind: Kind, namespace: str, label: str, jobs: int) -> list[float]:
    """Seconds of each of so many jobs that come at once. Raises SystemExit when one is lost."""
    began: dict[str, float] = {}
    with watching(cluster.api, namespace, (label,)) as times:
        for number in range(jobs):
            name = f"{kind.prefix}-burst-{number}"
            began[name] = time.monotonic()
            kind.create(name)
        waiting = Waiting()
        while lost := [name for name in began if not times.wait_until_bound(name, BURST.workers, 0.0)]:
            waiting.on(f"{len(lost)} of {jobs} jobs are not bound; first: {times.seen_of(lost[0])}")
            time.sleep(0.2)
        return [(times.last(name, BURST.workers, BOUND) or 0.0) - start for name, start in began.items()]


@contextmanager
def counted(cluster: ClusterSession, name: str) -> Iterator[None]:
    """Print what a part of the run cost."""
    before = costs(cluster)
    yield
    print(f"{name}:", *costs(cluster).since(before).lines(), sep="\n", flush=True)


def memory(cluster: ClusterSession) -> tuple[float, float]:
    """MB that the operator's process takes now, and took at most."""
    loop = cluster.plane.processes["operator-0"].pid
    pid = Path(f"/proc/{loop}/task/{loop}/children").read_text().split()[0]
    text = Path(f"/proc/{pid}/status").read_text()
    now, most = (int(re.findall(rf"{field}:\s+(\d+) kB", text)[0]) for field in ("VmRSS", "VmHWM"))
    return now / 1e3, most / 1e3


def buckets(text: str) -> dict[float, int]:
    """The operator's histogram of reconciliations: how many took at most so many seconds."""
    found = re.findall(r'kompakt_operator_reconcile_seconds_bucket\{le="([^"]+)"\} (\d+)', text)
    return {float(bound): int(count) for bound, count in found}


def quantile(since: Mapping[float, int], until: Mapping[float, int], share: float) -> tuple[float, float]:
    """Between which bounds of the histogram, in seconds, that share of the reconciliations between two readings lies."""
    counts = {bound: until[bound] - since.get(bound, 0) for bound in sorted(until)}
    wanted, below = share * max(counts.values()), 0.0
    for bound, count in counts.items():
        if count >= wanted:
            return below, bound
        below = bound
    raise AssertionError("the last bound holds them all")


def report(name: str, cluster: ClusterSession, since: Mapping[float, int]) -> dict[float, int]:
    """Print memory and reconciliations since the last reading; answers this reading."""
    now, most = memory(cluster)
    flag = next(flag for flag in cluster.components["operator-0"].argv if flag.startswith("--health-port="))
    until = buckets(_metrics(cluster, int(flag.partition("=")[2])))
    if max(until.values()) < max(since.values(), default=0):
        name, since = f"{name} (the operator began anew meanwhile)", {}
    count = max(until.values()) - max(since.values(), default=0)
    spread = ", ".join(
        f"p{share * 100:.0f} in {low:g} to {high:g} s"
        for share in ((0.5, 0.99) if count else ())
        for low, high in [quantile(since, until, share)]
    )
    print(
        f"{name}: operator {now:.0f} MB, at most {most:.0f} MB so far; {count} reconciliations{', ' if count else ''}{spread}; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return until


def _metrics(cluster: ClusterSession, port: int) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=asking_headers(cluster.parts.api))
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def run(cluster: ClusterSession, given: argparse.Namespace) -> None:
    with own_namespace(cluster.api) as namespace:
        crowd = Crowd(cluster, namespace, given.jobs, given.running, given.pods)
        with counted(cluster, f"{given.jobs - given.running} suspended jobs"):
            print(f"all Suspended after {crowd.rest():.0f} s", flush=True)
        seen = report("at rest", cluster, {})
        with counted(cluster, f"{given.running} jobs with {given.pods} pods"):
            print(f"all run after {crowd.run():.0f} s", flush=True)
        seen = report("filled", cluster, seen)
        if given.hold:
            with counted(cluster, f"{given.hold} s in which nothing happens"):
                time.sleep(given.hold)
            seen = report(f"{given.hold} s later", cluster, seen)
        bursts(cluster, given.burst)
        report("after the bursts", cluster, seen)
        check_gpus(_annotations(cluster, namespace), given.pods)


def bursts(cluster: ClusterSession, jobs: int) -> None:
    """Both kinds, each in a namespace of its own."""
    for make, label in ((training_jobs, LABEL_JOB_NAME), (plain_jobs, PLAIN_LABEL)):
        with own_namespace(cluster.api) as namespace:
            kind = make(cluster.api, namespace, BURST)
            with counted(cluster, f"{jobs} at once, {kind.name}"):
                times = burst(cluster, kind, namespace, label, jobs)
            print(line(f"{jobs} at once, {kind.name}: apply -> bound", times), f" load {os.getloadavg()[0]:.1f}", flush=True)
            if kind.prefix == "gang":
                check_gpus(_annotations(cluster, namespace), jobs * BURST.workers * BURST.gpus)


def _annotations(cluster: ClusterSession, namespace: str) -> list[dict[str, str]]:
    """Of all pods there, without the pods."""
    found = json.loads(fetch(cluster, f"/api/v1/namespaces/{namespace}/pods?resourceVersion=0", METADATA))
    return [item["metadata"]["annotations"] for item in found["items"]]


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
