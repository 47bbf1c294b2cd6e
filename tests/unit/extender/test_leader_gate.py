"""Following the Lease against a real HTTP server: deciding begins with one list of everything and ends with the Lease."""

import asyncio
import gc
import json
import queue
import re
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kompakt_client.connections import plain
from kompakt_client.transport import ApiClient
from kompakt_core.ids import NodeName
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_extender.explain_only import ExplainOnly
from kompakt_extender.leader_gate import LeaderGate
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.loop import Planner
from kompakt_extender.verbs import Inactive
from kompakt_extender.wire import ExtenderArgs, decode_args

ASKING = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"resources": {"limits": {"kompakt.dev/gpu": "1"}}}]}}


class Server:
    """Empty lists of everything but the Lease. Its holder renews it every second, as long as somebody watches it."""

    def __init__(self) -> None:
        self.holder: str | None = None  # None: there is no Lease; "": nobody holds it
        self.version = 1
        self.transitions = 0
        self.changes: queue.Queue[str | None] = queue.Queue()  # holders; None: the watch ends
        self.listed: list[str] = []
        self.items: dict[str, list[dict[str, Any]]] = {}  # by kind
        self.hold_back = threading.Event()  # set: the list of pods is answered
        self.hold_back.set()
        self.done = threading.Event()

    def lease(self) -> list[dict[str, Any]]:
        """As it is now; each version has another renewTime."""
        if self.holder is None:
            return []
        meta = {"name": "kompakt-scheduler", "uid": "lease", "resourceVersion": str(self.version)}
        return [
            {
                "metadata": meta,
                "spec": {
                    "holderIdentity": self.holder,
                    "leaseDurationSeconds": 15,
                    "renewTime": str(self.version),
                    "leaseTransitions": self.transitions,
                },
            }
        ]

    def changed(self) -> bool:
        """Waits for another holder, or for the holder's renewal; whether the watch goes on."""
        try:
            holder = self.changes.get(timeout=1.0 if self.holder else None)
        except queue.Empty:
            holder = self.holder
        if holder is None:
            return False
        self.transitions += holder not in ("", self.holder)  # as client-go counts them
        self.holder, self.version = holder, self.version + 1
        return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def do_GET(self) -> None:
        kind = self.path.split("?")[0].rsplit("/", 1)[-1]
        if "watch=true" in self.path:
            self._watch(kind)
            return
        if kind == "pods":
            self.state.hold_back.wait(5)
        self.state.listed.append(kind)
        items = self.state.lease() if kind == "leases" else self.state.items.get(kind, [])
        version = str(self.state.version if kind == "leases" else 1)
        body = json.dumps({"metadata": {"resourceVersion": version}, "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if kind != "leases":
            self.state.done.wait(10)
        asked = re.search(r"resourceVersion=(\d+)", self.path)
        if kind == "leases" and asked and int(asked[1]) < self.state.version:
            self._tell()  # what an earlier watch took, of which the client had given up hope
        while kind == "leases" and self.state.changed():
            self._tell()
        self.wfile.write(b"0\r\n\r\n")

    def _tell(self) -> None:
        data = json.dumps({"type": "MODIFIED", "object": self.state.lease()[0]}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[Server, ApiClient]]:
    state = Server()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"state": state}))
    listening.daemon_threads = True
    threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    endpoint = plain(f"http://127.0.0.1:{listening.server_port}")
    yield state, ApiClient(endpoint)
    state.done.set()
    state.changes.put(None)
    listening.shutdown()
    listening.server_close()


@asynccontextmanager
async def following(gate: LeaderGate | ExplainOnly) -> AsyncIterator[None]:
    """The gate follows the Lease meanwhile."""
    task = asyncio.create_task(gate.run())
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def args() -> ExtenderArgs:
    return decode_args(json.dumps({"Pod": ASKING, "NodeNames": ["n"]}).encode())


async def answers(gate: LeaderGate, words: str) -> None:
    """Until filter says this: an Inactive's text, or "serves"."""
    async with asyncio.timeout(20):
        while True:
            try:
                await gate.filter(args())
                said = "serves"
            except Inactive as error:
                said = str(error)
            if words in said:
                return
            await asyncio.sleep(0.005)


async def test_deciding_begins_after_everything_is_listed_and_ends_with_the_lease(
    server: tuple[Server, ApiClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, api = server
    gate = LeaderGate(api, "ns", "pod-a", ExtenderMetrics(), LEVEL_LABELS)
    async with following(gate):
        await answers(gate, "nobody holds")
        state.hold_back.clear()
        state.changes.put("pod-a_1")
        await answers(gate, "still reading the cluster")
        assert "pods" in gate.trouble
        assert gate.unfit == ""
        monkeypatch.setattr("kompakt_extender.leader_session.STALLED_SECONDS", 0.0)
        assert "does not answer about" in gate.unfit
        assert "pods" in gate.unfit
        state.hold_back.set()
        await answers(gate, "serves")
        assert {"pods", "nodes", "gputopologies", "trainingjobs"} <= set(state.listed)
        assert gate.trouble == gate.stuck == gate.unfit == ""
        state.changes.put("pod-b_1")
        await answers(gate, "held by pod-b_1, not by pod-a")


async def test_what_is_known_outlives_a_hundred_losses_of_a_lease_that_nobody_else_held(
    server: tuple[Server, ApiClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler beside it ends and is started again, under another name each time."""
    monkeypatch.setattr("kompakt_client.lease.MARGIN_SECONDS", 0.0)
    state, api = server
    state.holder = "pod-a_0"
    state.items["pods"] = [a_pod(number) for number in range(100)]
    gate = LeaderGate(api, "ns", "pod-a", ExtenderMetrics(), LEVEL_LABELS)
    async with following(gate):
        await answers(gate, "serves")
        session = gate._session
        before = blocks()
        for number in range(1, 101):
            state.changes.put("")
            await answers(gate, "nobody holds")
            state.changes.put(f"pod-a_{number}")
            await answers(gate, "serves")
        assert gate._session is session
        assert {kind: state.listed.count(kind) for kind in ("pods", "nodes", "trainingjobs")} == {
            "pods": 1,
            "nodes": 1,
            "trainingjobs": 1,
        }
        assert blocks() <= 1.1 * before


async def test_somebody_who_held_the_lease_unseen_ends_what_is_known(
    server: tuple[Server, ApiClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kompakt_client.lease.MARGIN_SECONDS", 0.0)
    state, api = server
    state.holder = "pod-a_1"
    gate = LeaderGate(api, "ns", "pod-a", ExtenderMetrics(), LEVEL_LABELS)
    async with following(gate):
        await answers(gate, "serves")
        session = gate._session
        state.transitions += 1
        state.changes.put("pod-a_2")
        async with asyncio.timeout(20):
            while gate._session is session:
                await asyncio.sleep(0.005)
        await answers(gate, "serves")
        assert state.listed.count("pods") == 2


async def test_nothing_is_planned_while_the_lease_is_nobodys(
    server: tuple[Server, ApiClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kompakt_client.lease.MARGIN_SECONDS", 0.0)
    cycles: list[bool] = []
    state, api = server
    gate = LeaderGate(api, "ns", "pod-a", ExtenderMetrics(), LEVEL_LABELS)

    async def run_cycle(planner: Planner) -> None:
        cycles.append(gate._active())

    monkeypatch.setattr(Planner, "run_cycle", run_cycle)
    state.holder = "pod-a_1"
    async with following(gate):
        await answers(gate, "serves")
        assert gate._session is not None
        planner = gate._session.planner
        for holder in ("", "pod-a_2"):
            state.changes.put(holder)
            await answers(gate, "serves" if holder else "nobody holds")
            before = len(cycles)
            planner.wake()
            if holder:
                async with asyncio.timeout(20):
                    while len(cycles) == before:
                        await asyncio.sleep(0.005)
            else:
                await asyncio.sleep(0.1)
                assert len(cycles) == before
        assert all(cycles)


async def test_gangs_are_counted_only_while_it_decides(server: tuple[Server, ApiClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kompakt_client.lease.MARGIN_SECONDS", 0.0)
    state, api = server
    metrics = ExtenderMetrics()
    gate = LeaderGate(api, "ns", "pod-a", metrics, LEVEL_LABELS)
    async with following(gate):
        for holder in ("pod-a_1", "", "pod-a_2", "pod-b_1"):
            state.changes.put(holder)
            await answers(gate, "serves" if holder.startswith("pod-a") else "not by pod-a" if holder else "nobody holds")
            async with asyncio.timeout(20):
                while bool(counted(metrics)) != holder.startswith("pod-a"):
                    await asyncio.sleep(0.005)


def counted(metrics: ExtenderMetrics) -> list[float]:
    return [sample.value for family in metrics.gangs.collect() for sample in family.samples]


def a_pod(number: int) -> dict[str, Any]:
    meta = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}"}
    container = {"resources": {"requests": {"kompakt.dev/gpu": "1"}}}
    return {"metadata": meta, "spec": {"schedulerName": "kompakt-scheduler", "containers": [container]}}


def blocks() -> int:
    """Blocks of memory that Python has given out."""
    gc.collect()
    return sys.getallocatedblocks()


async def test_a_second_time_begins_with_a_second_list(server: tuple[Server, ApiClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kompakt_extender.leader_gate.FORGET_SECONDS", 0.1)
    monkeypatch.setattr("kompakt_client.lease.MARGIN_SECONDS", 0.0)  # the quiet time after a Lease was given up
    state, api = server
    state.holder = "pod-a_1"
    gate = LeaderGate(api, "ns", "pod-a", ExtenderMetrics(), LEVEL_LABELS)
    async with following(gate):
        await answers(gate, "serves")
        assert state.listed.count("pods") == 1
        assert gate._session is not None
        first = weakref.ref(gate._session.ledger)
        state.changes.put("pod-b_1")
        await answers(gate, "held by pod-b_1")
        async with asyncio.timeout(20):
            while first() is not None:  # what the first session knew is forgotten
                await asyncio.sleep(0.005)
        state.changes.put("pod-a_2")
        await answers(gate, "serves")
        assert state.listed.count("pods") == 2


async def test_a_bound_pod_that_cannot_be_read_is_known_to_hold_its_gpus(server: tuple[Server, ApiClient]) -> None:
    state, api = server
    meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": {"kompakt.dev/gpus": "GPU-1"}}
    state.items["pods"] = [{"metadata": meta, "spec": {"nodeName": "n", "containers": 7}}]
    state.holder = "pod-a_1"
    gate = LeaderGate(api, "ns", "pod-a", ExtenderMetrics(), LEVEL_LABELS)
    async with following(gate):
        await answers(gate, "serves")
        assert gate._session is not None
        assert [pod.written_gpus for pod in gate._session.ledger.bound_to(NodeName("n")).values()] == [("GPU-1",)]


async def test_memory_is_given_back_after_everything_was_compared_once_more(
    server: tuple[Server, ApiClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large objects that were read, and are gone perhaps, else leave the process as large as it ever was."""
    given, loop = asyncio.Event(), asyncio.get_running_loop()
    monkeypatch.setattr("kompakt_client.memory.give_back", lambda: loop.call_soon_threadsafe(given.set))
    session = LeaderSession(server[1], ExtenderMetrics(), lambda: True, LEVEL_LABELS)
    session.missing.clear()
    session._listed("pods")
    async with asyncio.timeout(20):
        await given.wait()


async def test_explaining_only_needs_no_lease_and_decides_nothing(server: tuple[Server, ApiClient]) -> None:
    state, api = server
    meta = {"name": "p", "namespace": "default", "uid": "u"}
    asks = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}], "nodeName": "n"}
    state.items["pods"] = [{"metadata": meta, "spec": asks}]
    state.hold_back.clear()
    explainer = ExplainOnly(api, ExtenderMetrics(), LEVEL_LABELS, "nvidia.com/gpu")
    async with following(explainer):
        async with asyncio.timeout(20):
            while set(state.listed) < {"nodes", "namespaces"}:
                await asyncio.sleep(0.005)
        with pytest.raises(Inactive, match="still reading"):
            explainer.queries()
        assert "pods" in explainer.trouble
        state.hold_back.set()
        async with asyncio.timeout(20):
            while explainer.trouble:
                await asyncio.sleep(0.005)
        assert explainer.queries().pod("default", "p")().state == "Bound"
        assert explainer.stuck == explainer.unfit == ""
        session = explainer._session
        assert session is not None
        assert [one.gpus for one in session.ledger.bound_to(NodeName("n")).values()] == [2]
        assert not session.planner._may_decide()
        explainer._restored("another etcd")
        assert explainer._session not in (None, session)
    assert "leases" not in state.listed
