"""filter and prioritize beside a bare echo: the two requests of kube-scheduler for a pod that any of many nodes could take.

The pod wants to be spread, so kube-scheduler must hear of all nodes that fit and asks for the scores of all: the dearest case.
Of a pod without such a request the best hundred pass.

    python -m benchmarks.extender [--names 100 1000 5000] [--requests 200]

The server is a process of its own, as in the cluster: the extender's own routes over caches that were filled as its watches fill
them, and on another port a bare FastAPI app with routes as FastAPI makes them (the extender's are plain ones of Starlette's). It
decodes the same bodies with msgspec and answers with their names: all, for filter; for prioritize, each with a score, as many as
the extender has just given one (it leaves out those with 0). So both read and write as many bytes. Requests go out in turn over
one kept connection each. Before each request to the extender one node loses or gains two GPUs, as between two pods of a busy
cluster. Then the same requests once more while a gang is being planned without a pause. The processor time of the server's
thread is printed beside the clock's, which says little where others use the machine too. Bars: p50 at most 1.5 times the echo's;
less than 300 MB resident with 5,000 nodes.
"""

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from fastapi import FastAPI, Request, Response

from benchmarks.kube_scheduler import GPUS, JSON, SCORED, Client, Taken, body_of, name_of, other_body, spec_of
from kompakt_client.connections import plain
from kompakt_client.transport import ApiClient
from kompakt_core.contract import ANN_GPUS, RESOURCE
from kompakt_core.ids import JobUid, NodeName, PodUid
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.gang_placement import LEVEL_LABELS, plan_gang
from kompakt_core.placement.model import Gang, GpuRequest, Rejection, Worker
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.wire import graph_to_spec
from kompakt_extender.custom_patterns import CustomPatterns
from kompakt_extender.deciding.process import DecidingProcess
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.main import listen, prefer_verbs, server
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.objects import Pod
from kompakt_extender.project import read_node, read_pod
from kompakt_extender.project_topology import TopologyReader
from kompakt_extender.rejections import FilterVerdict
from kompakt_extender.verbs import verbs_app
from kompakt_extender.wire import BindingArgs, ExtenderArgs, FilterResult, encode

MACHINE = "dgx1-v100"
VERBS, WHO = ("filter", "prioritize"), ("extender", "echo")
TURNS = 8  # orders of names, one for each pod's filter and prioritize
WARM_UP = 10  # requests of each kind that do not count
OTHERS = 50  # pods a second


class Echoed(msgspec.Struct, rename="pascal"):
    """What the echo reads of a request."""

    pod: Pod
    node_names: list[str]


class HostPriority(msgspec.Struct, rename="pascal"):
    """One entry of prioritize's answer."""

    host: str
    score: int


_ECHOED = msgspec.json.Decoder(Echoed)
_ENCODER = msgspec.json.Encoder()


class Busy:
    """The decider of a running leader session, before each of whose answers one node has changed."""

    def __init__(self, session: LeaderSession, nodes: int) -> None:
        self._session = session
        self._turn = itertools.cycle(range(nodes))

    async def filter(self, args: ExtenderArgs) -> FilterVerdict:
        self._change()
        return await self._session.filter(args)

    def prioritize(self, args: ExtenderArgs) -> bytes:
        self._change()
        return self._session.prioritize(args)

    async def bind(self, args: BindingArgs) -> Rejection | None:
        return await self._session.bind(args)

    def _change(self) -> None:
        ledger, node = self._session.ledger, NodeName(name_of(next(self._turn)))
        seen = ledger.topologies[node]
        assert seen.graph is not None
        other = PodUid("other")
        rest = tuple(one for one in seen.held if one[1] != other)
        more = () if len(rest) < len(seen.held) else tuple((gpu.uuid, other) for gpu in seen.graph.gpus[-2:])
        ledger.set_topology(msgspec.structs.replace(seen, held=(*rest, *more)))


def fill(session: LeaderSession, nodes: int) -> None:
    """Equal machines, on two of three of which one or two pods hold GPUs, read from JSON as the watches read it."""
    reader = TopologyReader()
    for number in range(nodes):
        name = name_of(number)
        graph = read_description(MACHINE, NodeName(name))
        held = [gpu.uuid for gpu in graph.gpus[: number % 3]]
        pods = [(f"uid-{name}-{uuid}", uuid) for uuid in held]
        session.ledger.set_topology(reader(topology(name, graph_to_spec(graph, node_uid=f"uid-{name}", source="text"), pods)))
        session.ledger.set_node(read_node(node(name)))
        for uid, uuid in pods:
            session.ledger.set_pod(read_pod(bound(name, uid, uuid)))


def topology(name: str, spec: Mapping[str, Any], held: Sequence[tuple[str, str]]) -> bytes:
    status = {"held": [{"uuid": uuid, "podUID": uid} for uid, uuid in held]}
    return msgspec.json.encode({"metadata": {"name": name, "uid": f"topology-{name}"}, "spec": spec, "status": status})


def node(name: str) -> bytes:
    """A node as large as real ones are: some 14 KB, most of it names of images."""
    images = [
        {"names": [f"registry.example/team/image-{i}@sha256:{i:064x}", f"registry.example/team/image-{i}:v{i}"]}
        for i in range(50)
    ]
    labels = {f"example.com/label-{i}": f"value-{i % 4}" for i in range(20)} | {"kubernetes.io/hostname": name}
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", RESOURCE: str(GPUS)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}], "images": images}
    return msgspec.json.encode({"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": {}, "status": status})


def bound(node: str, uid: str, uuid: str) -> bytes:
    meta = {"name": f"pod-{uid}", "namespace": "default", "uid": uid, "annotations": {ANN_GPUS: uuid}}
    return msgspec.json.encode({"metadata": meta, "spec": {"nodeName": node, **spec_of(1)}, "status": {"phase": "Running"}})


def echo_app() -> FastAPI:
    """What any FastAPI and msgspec server must do for such a request."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.post("/filter")
    async def filter_nodes(request: Request) -> Response:
        names = _ECHOED.decode(await request.body()).node_names
        return Response(encode(FilterResult(names)), media_type=JSON)

    @app.post("/prioritize")
    async def prioritize_nodes(request: Request) -> Response:
        names = _ECHOED.decode(await request.body()).node_names[: int(request.headers[SCORED])]
        return Response(_ENCODER.encode([HostPriority(name, 5) for name in names]), media_type=JSON)

    return app


async def serve(nodes: int, *, here: bool) -> None:
    """Answer until killed; prints both ports. `here`: custom edges are weighed in this process."""
    prefer_verbs()
    metrics = ExtenderMetrics()
    weights = None if here else CustomPatterns(DecidingProcess("kompakt_extender.deciding.weighing:weigher", niceness=5))
    session = LeaderSession(ApiClient(plain("http://localhost")), metrics, lambda: True, LEVEL_LABELS, weights=weights)
    fill(session, nodes)
    app = verbs_app(Busy(session, nodes), metrics)
    stop = threading.Event()

    @app.post("/plan")
    async def plan() -> None:
        snapshot = session.ledger.snapshot()
        workers = tuple(Worker(i, f"w{i}", PodUid(f"w{i}"), 4) for i in range(16))
        gang = Gang(JobUid("j"), 1, workers, GpuRequest(Pattern.RING, sensitive=True))

        def think() -> None:
            while not stop.is_set():
                plan_gang(snapshot, gang)

        threading.Thread(target=think, daemon=True).start()

    @app.post("/rest")
    async def rest() -> None:
        stop.set()

    sockets = [listen("127.0.0.1", 0), listen("127.0.0.1", 0)]
    print(*(one.getsockname()[1] for one in sockets), flush=True)
    await asyncio.gather(server(app).serve([sockets[0]]), server(echo_app()).serve([sockets[1]]))


def _until_closed(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def ask_in_vain(port: int, names: int, *, edges: bool) -> None:
    """Ask filter and prioritize about OTHERS such pods a second until standard input ends; prints how many milliseconds each pod
    took, as JSON.
    """
    stop, took = threading.Event(), list[float]()
    threading.Thread(target=_until_closed, args=[stop], daemon=True).start()
    client, began = Client(os.getpid(), port), time.monotonic()
    for number in itertools.count():
        if stop.wait(max(began + number / OTHERS - time.monotonic(), 0.0)):
            break
        body, start = other_body(names, number, edges=edges), time.perf_counter()
        for verb in VERBS:
            client.post(f"/{verb}", body)
        took.append((time.perf_counter() - start) * 1e3)
    print(json.dumps(took))


@contextmanager
def others(port: int, names: int, *, edges: bool) -> Iterator[list[float]]:
    """Another process asks in vain meanwhile; what it took is in the list at the end. A process, since two threads that measure
    and ask would wait for each other.
    """
    command = [sys.executable, "-m", "benchmarks.extender", "--ask-in-vain", str(port), "--names", str(names)]
    command += ["--edges"] if edges else []
    took: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield took
        took += json.loads(process.communicate()[0])


def measure(clients: Mapping[str, Client], names: int, requests: int) -> dict[tuple[str, str], list[Taken]]:
    """What each request took, by verb and server."""
    bodies = [body_of(names, turn) for turn in range(TURNS)]
    times: dict[tuple[str, str], list[Taken]] = {(verb, who): [] for verb in VERBS for who in WHO}
    scored = 0
    for number in range(requests + WARM_UP):
        for (verb, who), taken in times.items():
            took, answer = clients[who].post(f"/{verb}", bodies[number % TURNS], scored)
            if (verb, who) == ("prioritize", "extender"):
                scored = answer.count(b'"Host"')
            if number >= WARM_UP:
                taken.append(took)
    return times


def check(ours: Client, names: int) -> None:
    """All nodes pass, many have a score, and not all the same; otherwise the times would mean nothing."""
    passed = json.loads(ours.post("/filter", body_of(names))[1])["NodeNames"]
    scores = json.loads(ours.post("/prioritize", body_of(names))[1])
    if len(passed) != names or len(scores) < names / 2 or len({score["Score"] for score in scores}) < 2:
        raise SystemExit(f"{len(passed)} of {names} nodes pass and {len(scores)} have a score, perhaps all the same")


def quantile(times: Sequence[float], share: float) -> float:
    """Milliseconds."""
    return sorted(times)[min(int(len(times) * share), len(times) - 1)] * 1e3


def report(title: str, times: Mapping[tuple[str, str], Sequence[Taken]]) -> None:
    print(title)
    for verb in VERBS:
        clock, processor = (
            {who: [getattr(one, kind) for one in times[verb, who]] for who in WHO} for kind in ("clock", "processor")
        )
        for who in reversed(WHO):
            figures = f"p50 {quantile(clock[who], 0.5):6.2f} ms   p99 {quantile(clock[who], 0.99):6.2f} ms"
            print(f"  {verb:<10} {who:<8} {figures}   processor p50 {quantile(processor[who], 0.5):6.2f} ms")
        ratios = [quantile(one["extender"], 0.5) / quantile(one["echo"], 0.5) for one in (clock, processor)]
        print(f"  {'':<10} p50 {ratios[0]:.2f} times the echo's; of the server's processor time {ratios[1]:.2f} times")


def memory(pid: int) -> str:
    """Resident memory now and at most, in MB (10^6 bytes)."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(lines[key].split()[0]) * 1024 / 1e6 for key in ("VmRSS", "VmHWM"))
    return f"{now:.0f} MB resident, {most:.0f} MB at most"


@contextmanager
def serving(nodes: int, *, here: bool) -> Iterator[tuple[int, int, dict[str, Client]]]:
    """The server's pid, the extender's port, and a client for the extender and for the echo."""
    command = [sys.executable, "-m", "benchmarks.extender", "--serve", str(nodes), *(["--edges-here"] if here else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ports = process.stdout.readline().split()
            clients = {who: Client(process.pid, int(port)) for who, port in zip(WHO, ports, strict=True)}
            yield process.pid, int(ports[0]), clients
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--requests", type=int, default=200, help="of each kind")
    parser.add_argument(
        "--edges-here", action="store_true", help="weigh custom edges in the process that answers, as kompakt once did"
    )
    parser.add_argument("--edges", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ask-in-vain", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if min(given.names) < 3 or given.requests < 1:
        parser.error("--names must be at least 3, --requests at least 1")
    if given.ask_in_vain:
        ask_in_vain(given.ask_in_vain, given.names[0], edges=given.edges)
        return
    if given.serve:
        uvloop.run(serve(given.serve, here=given.edges_here))
        return
    for names in given.names:
        with serving(names, here=given.edges_here) as (pid, port, clients):
            check(clients["extender"], names)
            title = f"{names} names, {given.requests} requests of each kind, {len(body_of(names)) >> 10} KiB a request"
            report(title, measure(clients, names, given.requests))
            print(f"  with caches of {names} nodes: {memory(pid)}")
            clients["extender"].post("/plan", b"")
            report(
                "  while gangs of 16 workers are planned without a pause", measure(clients, names, max(given.requests // 4, 1))
            )
            clients["extender"].post("/rest", b"")
            beside_others(clients, port, names, given.requests * 20)


def beside_others(clients: Mapping[str, Client], port: int, names: int, requests: int) -> None:
    """The same requests beside ordinary pods, and beside custom edges for so long that their namespace uses up its time."""
    p99: list[dict[str, float]] = []
    for kind in ("ordinary pods", "pods with edges of their own"):
        with others(port, names, edges=bool(p99)) as took:
            times = measure(clients, names, requests)
        if not took:
            raise SystemExit("all requests were over before others had asked once: give more --requests")
        p99.append({verb: quantile([one.clock for one in times[verb, "extender"]], 0.99) for verb in VERBS})
        report(f"  beside {OTHERS} {kind} a second ({len(took)} asked about)", times)
        figures = f"p50 {quantile(took, 0.5) / 1e3:.2f} ms, p99 {quantile(took, 0.99) / 1e3:.2f} ms"
        print(f"  {'':<10} those took {figures} for both verbs")
    for verb in VERBS:
        print(f"  {verb:<10} p99 beside edges {p99[1][verb] / p99[0][verb]:.2f} times that beside ordinary pods")


if __name__ == "__main__":
    main()
