"""The machine of tests/unit/client/test_reflection.py with a real API server, whose network breaks one request in ten.

KOMPAKT_SEED repeats a run. There is no comparison by the clock: what the watch and our own answers say must do.
"""

import itertools
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from kompakt_client.backoff import Backoff
from kompakt_client.errors import ApiError, Conflict, NotFound
from kompakt_client.objects import WatchedKind
from kompakt_client.reflector import Reflector, Stream
from kompakt_client.requests import Answer as HttpAnswer
from kompakt_client.requests import ApiRequest, Query
from kompakt_client.store import ObjectChange, StoredObject
from kompakt_client.transport import ApiClient, connect
from tests.support.client.kubeconfigs import write_kubeconfig
from tests.support.client.reflecting import Answer, ReflectingMachine, Seen
from tools.kube import control_plane
from tools.kube.binaries import find_all
from tools.kube.processes import launch_tied, wait_until
from tools.kube.programs import SIMULATED
from tools.kube.session import ClusterSession

SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
SPACE = "/api/v1/namespaces/default/configmaps"
LABEL = "kompakt.dev/test"
# Few and short, since each step is real; no shrinking, since the network's order cannot be repeated exactly.
FEW = settings(
    max_examples=16,
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """A control plane and the proxy before it."""
    find = find_all([*SIMULATED, "helm"]).__getitem__
    folder = tmp_path_factory.mktemp("reflector") / "run"
    cluster = ClusterSession(control_plane.start(folder, find, launch=launch_tied), find)
    yield cluster
    cluster.stop()


@pytest.fixture
def spoilt(plane: ClusterSession, tmp_path: Path) -> ApiClient:
    """The API server through the proxy, with an account that may do all: the proxy hands on no certificates."""
    admin = connect(plane.kubeconfig)
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "reflector"}, "roleRef": role, "subjects": [account]}
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    token = admin.create("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {"expirationSeconds": 3600}})
    address, proxy = plane.parts.faulty_server(SEED)
    plane.start(proxy)
    authority = {"certificate-authority": str(plane.plane.keys.authority.certificate_file)}
    user = {"token": token["status"]["token"]}
    return connect(write_kubeconfig(tmp_path / "kubeconfig", address, cluster=authority, user=user))


class HeldStream:
    """A watch that hands on what it shows only while `flows` is set."""

    def __init__(self, stream: Stream, flows: threading.Event) -> None:
        self.stream, self.flows = stream, flows

    def batches(self) -> Iterator[list[bytes]]:
        for lines in self.stream.batches():
            self.flows.wait()
            yield lines

    def stop(self) -> None:
        self.stream.stop()


class HeldSource:
    """The API server over lines that can be held and cut."""

    def __init__(self, api: ApiClient) -> None:
        self.api, self.flows = api, threading.Event()
        self.stream: Stream | None = None

    def exchange(self, request: ApiRequest) -> HttpAnswer:
        self.flows.wait()
        return self.api.exchange(request)

    def watch(self, path: str, query: Query, silence: float) -> Stream:
        self.stream = HeldStream(self.api.watch(path, query, silence), self.flows)
        return self.stream

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self.flows.set()
        try:
            yield
        finally:
            self.flows.clear()

    def cut(self) -> None:
        if self.stream is not None:
            self.stream.stop()


def number_of(raw: bytes) -> str:
    return str(int(msgspec.json.decode(raw)["data"]["number"]))


class RealServer(ReflectingMachine):
    """The Reflector is what is tested, and the machine is its listener.

    News flows while the machine waits or catches up: between two rules it would nearly always overtake the answers.
    """

    admin: ClassVar[ApiClient]
    spoilt: ClassVar[ApiClient]
    runs: ClassVar = itertools.count()

    def start(self) -> None:
        self.run = f"run-{next(self.runs)}"
        self.selector = {"labelSelector": f"{LABEL}={self.run}"}
        self.writes = self.marks = self.lists = 0
        kind = WatchedKind("configmaps", SPACE, number_of, self.selector, watch_seconds=5, silence_seconds=20.0, page=2)
        self.source = HeldSource(self.spoilt)
        self.reflector = Reflector(
            self.source,
            kind,
            self,
            listed=self.listed,
            compare_seconds=3600.0,
            backoff=Backoff(0.2, 1.0),
            random=Random(SEED).random,  # Hypothesis forbids that other threads touch the global one
        )
        self.reflector.start()

    # What the Reflector tells

    def replace(self, objects: Iterable[StoredObject[str]]) -> None:
        self.heard = {found.name: found for found in objects}

    def change(self, changes: Sequence[ObjectChange[str]]) -> None:
        self.hear(changes)

    def listed(self) -> None:
        self.lists += 1

    # What the machine does

    def written(self, name: str, readable: bool) -> Answer | None:
        self.writes += 1
        body = {
            "metadata": {"name": f"{self.run}-{name}", "labels": {LABEL: self.run}},
            "data": {"number": str(self.writes) if readable else "unreadable"},
        }
        try:
            made = self.create_or_merge(body)
        except ApiError:  # spoilt on its way
            return None
        return Answer(stored(made), msgspec.json.encode(made))

    def create_or_merge(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.spoilt.create(SPACE, body)
        except Conflict:
            return self.spoilt.merge(f"{SPACE}/{body['metadata']['name']}", body)

    def deleted(self, name: str) -> Answer | None:
        path = f"{SPACE}/{self.run}-{name}"
        try:
            uid = str(self.spoilt.get(path)["metadata"]["uid"])
            self.spoilt.json(ApiRequest("DELETE", path, body={"preconditions": {"uid": uid}}))
        except NotFound:  # an earlier write of unknown outcome was not done
            return Answer()
        except ApiError:
            return None
        return Answer(gone=uid)

    def arrive(self, answer: Answer) -> None:
        if answer.raw:
            self.reflector.answered(answer.raw)
        if answer.gone:
            self.reflector.gone(answer.gone)

    def connections_break(self) -> None:
        self.source.cut()

    def wait(self, seconds: float) -> None:
        with self.source.flowing():
            time.sleep(min(seconds / 1000.0, 0.3))

    def catch_up(self) -> None:
        """The store may equal the server before the watch has shown what came and went: a last write tells when it has."""
        last = self.marked()
        with self.source.flowing():
            wait_until(lambda: self.lists > 0 and self.reflected() >= last, 60)
        assert self.in_the_store() == self.on_the_server()

    def marked(self) -> int:
        """The version of a write that comes after all others, to an object that the store does not keep."""
        self.marks += 1
        body = {
            "metadata": {"name": f"{self.run}-mark-{self.marks}", "labels": {LABEL: self.run}},
            "data": {"number": "unreadable"},
        }
        return int(self.admin.create(SPACE, body)["metadata"]["resourceVersion"])

    def reflected(self) -> int:
        with self.reflector._lock:
            return self.reflector.store.reflected

    def on_the_server(self) -> dict[str, Seen]:
        found = map(stored, self.admin.list(SPACE, self.selector)["items"])
        return {one.name: one for one in found if one.view is not None}

    def in_the_store(self) -> dict[str, Seen]:
        with self.reflector._lock:
            return {one.name: one for one in self.reflector.store}

    def teardown(self) -> None:
        if not hasattr(self, "reflector"):
            return
        try:
            super().teardown()
            assert self.heard == self.in_the_store()
            assert self.lists == 1, "a broken connection costs no new list"
        finally:
            self.source.flows.set()
            self.reflector.stop()


def stored(found: dict[str, Any]) -> Seen:
    meta, number = found["metadata"], found["data"]["number"]
    view = number if number.isdigit() else None
    return StoredObject(meta["namespace"], meta["name"], meta["uid"], int(meta["resourceVersion"]), view)


@pytest.mark.timeout(300)
def test_through_a_spoilt_network_the_store_ends_with_what_the_server_has(plane: ClusterSession, spoilt: ApiClient) -> None:
    RealServer.admin, RealServer.spoilt = connect(plane.kubeconfig), spoilt
    try:
        run_state_machine_as_test(seed(SEED)(RealServer), settings=FEW)  # type: ignore[no-untyped-call]
    except BaseException as error:
        error.add_note(f"KOMPAKT_SEED={SEED} repeats this run")
        raise
