"""What the explain API and a scrape cost beside the verbs: a cluster held in memory, the extender's own routes.

    python -m benchmarks.explain [--nodes 5000] [--pods 20000] [--requests 100]

The server is a process of its own with two ports, as in the cluster. prioritize is asked over one kept connection, first
alone, then while another connection asks what-if (or scrapes) without a pause; every answer is read whole. Resident memory
is read from /proc after the caches are filled, and again at the end.
"""

import argparse
import asyncio
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from benchmarks.extender import Busy, fill, quantile
from benchmarks.kube_scheduler import Client, body_of, name_of
from kompakt_client.connections import plain
from kompakt_client.requests import ApiRequest, Object
from kompakt_client.reviews import Reviews
from kompakt_client.transport import ApiClient
from kompakt_core import contract
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_core.placement.model import NodeState
from kompakt_extender.explain.access import AccessGuard
from kompakt_extender.explain.queries import Queries
from kompakt_extender.health import health_app
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.main import listen, server
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.verbs import verbs_app
from kompakt_extender.views import PodView

WHAT_IF = json.dumps({"gpus": 4, "pattern": "Ring", "sensitivity": "High"}).encode()


class Asked:
    """A leader session as the health port sees it."""

    trouble = stuck = unfit = ""
    unconfirmed_binds = gated_pods = 0

    def __init__(self, session: LeaderSession) -> None:
        self._session = session

    def queries(self) -> Queries:
        return self._session.queries

    def states(self) -> Mapping[NodeName, NodeState]:
        return self._session.ledger.snapshot().nodes


class Granting:
    """An API server on which everybody may everything. What it says is kept for seconds, so it is hardly ever asked."""

    def json(self, request: ApiRequest) -> Object:
        user = {"username": "benchmark"}
        return {"status": {"authenticated": True, "audiences": [contract.TOKEN_AUDIENCE], "user": user, "allowed": True}}


def add_pods(session: LeaderSession, pods: int, nodes: int) -> None:
    """Pods without GPUs, as many as a cluster of that size runs."""
    for number in range(pods):
        node = NodeName(name_of(number % nodes))
        labels = {contract.LABEL_JOB_NAME: f"job-{number // 8}"}
        session.ledger.set_pod(PodView(PodUid(f"uid-{number}"), "default", f"pod-{number}", node, "Running", labels=labels))


async def serve(nodes: int, pods: int) -> None:
    """Answer until killed."""
    metrics = ExtenderMetrics()
    session = LeaderSession(ApiClient(plain("http://localhost")), metrics, lambda: True, LEVEL_LABELS)
    fill(session, nodes)
    add_pods(session, pods, nodes)
    session.ledger.snapshot()
    apps = [verbs_app(Busy(session, nodes), metrics), health_app(Asked(session), metrics, AccessGuard(Reviews(Granting())))]
    sockets = [listen("127.0.0.1", 0) for _ in apps]
    print(*(socket.getsockname()[1] for socket in sockets), flush=True)
    await asyncio.gather(*(server(app).serve([socket]) for app, socket in zip(apps, sockets, strict=True)))


def resident(pid: int) -> int:
    """Resident memory in MB (10^6 bytes)."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024 // 1_000_000


class Crowd:
    """Somebody who asks one question again and again; `times` in seconds."""

    def __init__(self, port: int, method: str, path: str, body: bytes | None) -> None:
        self._question = (port, method, path, body)
        self._end = threading.Event()
        self.times: list[float] = []
        self.size = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        port, method, path, body = self._question
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while not self._end.is_set():
            self.ask(connection, method, path, body)

    def ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None) -> None:
        began = time.perf_counter()
        connection.request(method, path, body, {"Content-Type": "application/json", contract.TOKEN_HEADER: "any"})
        response = connection.getresponse()
        self.size = len(response.read())
        if response.status != 200:
            raise SystemExit(f"{path}: HTTP {response.status}")
        self.times.append(time.perf_counter() - began)

    def __enter__(self) -> "Crowd":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()


def prioritized(asking: Client, nodes: int, requests: int) -> list[float]:
    """Seconds of each prioritize after the first ten."""
    body = body_of(nodes)
    return [asking.post("/prioritize", body)[0].clock for _ in range(requests + 10)][10:]


def line(name: str, times: Sequence[float]) -> str:
    return f"{name:<12} p50 {quantile(times, 0.5):6.2f} ms   p99 {quantile(times, 0.99):6.2f} ms"


def report(verbs: Client, health: int, nodes: int, requests: int) -> None:
    """Print all figures."""
    first = Crowd(health, "GET", "/metrics", None)
    first.ask(http.client.HTTPConnection("127.0.0.1", health), "GET", "/metrics", None)
    print(f"first scrape {first.times[0] * 1e3:.0f} ms, {first.size >> 10} KiB")
    print(line("prioritize", prioritized(verbs, nodes, requests)), "  alone")
    for name, method, path, body in (("what-if", "POST", "/v1alpha1/what-if", WHAT_IF), ("scrape", "GET", "/metrics", None)):
        with Crowd(health, method, path, body) as crowd:
            taken = prioritized(verbs, nodes, requests)
        print(line("prioritize", taken), f"  during {name} without a pause")
        print(_crowd(name, crowd.times))


def _crowd(name: str, times: Sequence[float]) -> str:
    return f"{name:<12} p50 {statistics.median(times) * 1e3:6.0f} ms   longest {max(times) * 1e3:.0f} ms ({len(times)} answers)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.nodes < 3 or given.requests < 1:
        parser.error("--nodes must be at least 3, --requests at least 1")
    if given.serve:
        uvloop.run(serve(given.nodes, given.pods))
        return
    command = [sys.executable, "-m", "benchmarks.explain", "--serve", f"--nodes={given.nodes}", f"--pods={given.pods}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            verbs, health = map(int, process.stdout.readline().split())
            print(f"{given.nodes} nodes, {given.pods} pods: {resident(process.pid)} MB resident with caches filled")
            report(Client(process.pid, verbs), health, given.nodes, given.requests)
            print(f"{resident(process.pid)} MB resident at the end")
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
