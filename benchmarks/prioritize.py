"""prioritize beside a bare echo: one request of kube-scheduler for a pod that any of many nodes could take.

    python -m benchmarks.prioritize [--nodes 5000] [--requests 200]

The server is a process of its own, as in the cluster: the extender's own routes over a cluster held in memory, and on the
same port a bare FastAPI route that decodes the same body with msgspec and answers the same names, each with score 0, so that
both read and write as many bytes. Requests go out in turn over one
kept connection. Before each prioritize one node loses or gains two GPUs, as between two pods of a busy cluster.
"""

import argparse
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import uvloop
from fastapi import Request, Response
from kubernetes import client

from kompakt_core.contract import RESOURCE
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_core.placement.gang import LEVEL_LABELS
from kompakt_core.topology.describe import read_description
from kompakt_extender.api import Api
from kompakt_extender.main import listen, server
from kompakt_extender.metrics import Metrics
from kompakt_extender.tenure import Tenure
from kompakt_extender.verbs import verbs_app
from kompakt_extender.views import NodeView, TopologyView
from kompakt_extender.wire import BindingArgs, BindingResult, ExtenderArgs, FilterResult, HostPriority, decode_args, encode

MACHINE = "dgx1-v100"


def name_of(number: int) -> str:
    return f"node-{number:05}"


class Busy:
    """The decider of a running tenure, before each of whose answers one node has changed."""

    def __init__(self, tenure: Tenure, nodes: int) -> None:
        self._tenure = tenure
        self._turn = itertools.cycle(range(nodes))

    def filter(self, args: ExtenderArgs) -> FilterResult:
        return self._tenure.filter(args)

    def prioritize(self, args: ExtenderArgs) -> bytes:
        ledger, node = self._tenure.ledger, NodeName(name_of(next(self._turn)))
        seen = ledger.topologies[node]
        assert seen.graph is not None
        taken = () if seen.held else tuple((gpu.uuid, PodUid("other")) for gpu in seen.graph.gpus[:2])
        ledger.set_topology(msgspec.structs.replace(seen, held=taken))
        return self._tenure.prioritize(args)

    async def bind(self, args: BindingArgs) -> BindingResult:
        return await self._tenure.bind(args)


def fill(tenure: Tenure, nodes: int) -> None:
    """Equal machines, every third with GPUs in use, so that there is something to rank."""
    for number in range(nodes):
        name = NodeName(name_of(number))
        graph = read_description(MACHINE, name)
        held = tuple((GpuUuid(gpu.uuid), PodUid("other")) for gpu in graph.gpus[: number % 3])
        tenure.ledger.set_topology(TopologyView(name, f"uid-{name}", graph, "", graph.size, held))
        tenure.ledger.set_node(NodeView(name, f"uid-{name}", {}, (), False, True, 64_000, 512 << 30, 110, graph.size))


async def serve(port: int, nodes: int) -> None:
    """Answer until killed."""
    metrics = Metrics()
    tenure = Tenure(Api(client.Configuration()), metrics, lambda: True, LEVEL_LABELS)
    fill(tenure, nodes)
    app = verbs_app(Busy(tenure, nodes), metrics)

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        names = decode_args(await request.body()).node_names or []
        return Response(encode([HostPriority(name, 0) for name in names]), media_type="application/json")

    socket = listen("127.0.0.1", port)
    print(socket.getsockname()[1], flush=True)
    await server(app).serve([socket])


def body_of(nodes: int) -> bytes:
    """What kube-scheduler posts for a plain pod of four GPUs."""
    container = {"name": "trainer", "image": "simulated", "resources": {"limits": {RESOURCE: "4"}, "requests": {RESOURCE: "4"}}}
    notes = {"kompakt.dev/pattern": "Ring", "kompakt.dev/bandwidth-sensitivity": "High"}
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "annotations": notes},
        "spec": {"containers": [container]},
    }
    names = [name_of(number) for number in range(nodes)]
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


def asker(connection: http.client.HTTPConnection, path: str, body: bytes) -> Callable[[], tuple[float, bytes]]:
    """A request that answers (seconds, body). Raises SystemExit for any answer but 200."""

    def ask() -> tuple[float, bytes]:
        began = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        taken = time.perf_counter() - began
        if response.status != 200:
            raise SystemExit(f"{path}: HTTP {response.status}: {answer[:200]!r}")
        return taken, answer

    return ask


def measure(port: int, nodes: int, requests: int) -> dict[str, list[float]]:
    """Seconds of each request after the first ten, by path."""
    connection, body = http.client.HTTPConnection("127.0.0.1", port), body_of(nodes)
    asks = {path: asker(connection, path, body) for path in ("/echo", "/prioritize")}
    check(asks["/prioritize"]()[1], nodes)
    times: dict[str, list[float]] = {path: [] for path in asks}
    for number in range(requests + 10):
        for path, ask in asks.items():
            seconds, _ = ask()
            if number >= 10:
                times[path].append(seconds)
    return times


def check(answer: bytes, nodes: int) -> None:
    """The answer ranks all nodes, and not all alike; otherwise its time would mean nothing."""
    scores: list[dict[str, Any]] = json.loads(answer)
    if len(scores) != nodes or len({score["Score"] for score in scores}) < 2:
        raise SystemExit(f"prioritize ranked {len(scores)} of {nodes} nodes, all alike: {answer[:200]!r}")


def line(name: str, times: Sequence[float]) -> str:
    ordered = sorted(times)
    return f"{name:<12} p50 {statistics.median(ordered) * 1e3:6.2f} ms   p99 {ordered[len(ordered) * 99 // 100] * 1e3:6.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--requests", type=int, default=200, help="of each kind")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.nodes < 3 or given.requests < 1:
        parser.error("--nodes must be at least 3, --requests at least 1")
    if given.serve:
        uvloop.run(serve(0, given.nodes))
        return
    command = [sys.executable, "-m", "benchmarks.prioritize", "--serve", f"--nodes={given.nodes}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            times = measure(int(process.stdout.readline()), given.nodes, given.requests)
        finally:
            process.terminate()
    print(f"{given.nodes} nodes, {given.requests} requests of each kind, {len(body_of(given.nodes)) >> 10} KiB a request")
    for path, taken in times.items():
        print(line(path.strip("/"), taken))
    print(f"ratio of p50: {statistics.median(times['/prioritize']) / statistics.median(times['/echo']):.2f}")


if __name__ == "__main__":
    main()
