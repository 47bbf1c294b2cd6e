"""The benchmarks' own watch of pods."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.fleet import Binds, Plugins, ready_nodes
from kompakt_client.requests import Answer
from kompakt_core.errors import TryLater

PATH = "/api/v1/namespaces/default/pods"


def event(kind: str, name: str, version: int, node: str = "n0") -> bytes:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": meta, "spec": {"nodeName": node, "containers": []}}}).encode()


class Script:
    """An API server: each watch gives the next lines and then ends, as told; the last one stays open."""

    def __init__(self, *watches: list[bytes | Exception]) -> None:
        self._left = list(watches)
        self.asked: list[str] = []

    def request(self, method: str, path: str, **more: Any) -> Answer:
        return Answer(200, b'{"metadata":{"resourceVersion":"10"},"items":[]}')

    def watch(self, path: str, query: dict[str, str], seconds: float) -> "Lines":
        self.asked.append(query["resourceVersion"])
        return Lines(self._left.pop(0), last=not self._left)


class Lines:
    def __init__(self, lines: list[bytes | Exception], *, last: bool) -> None:
        self._lines, self._last, self._stopped = lines, last, threading.Event()

    def batches(self) -> Iterator[list[bytes]]:
        for line in self._lines:
            if isinstance(line, Exception):
                raise line
            yield [line]
        if self._last:
            self._stopped.wait(10)

    def stop(self) -> None:
        self._stopped.set()


class Reported(Plugins):
    def __init__(self) -> None:
        self.pods: list[str] = []

    def bound(self, pod: Any) -> None:
        self.pods.append(pod.metadata.name)


@pytest.mark.parametrize("end", [[], [TryLater("connection reset", 1.0)]], ids=["the server ends it", "it breaks"])
def test_a_watch_that_ends_goes_on_where_it_was(end: list[bytes | Exception]) -> None:
    plugins = Reported()
    binds = Binds(plugins)
    api = Script([event("MODIFIED", "a", 11), event("ADDED", "waiting", 12, node=""), *end], [event("MODIFIED", "b", 13)])
    with binds.following(api, "default"):  # type: ignore[arg-type]
        binds.wait_for(2, 5.0)
    assert plugins.pods == ["a", "b"]
    assert (api.asked, binds.watches) == (["10", "12"], 2)


def test_a_version_that_is_too_old_is_said_and_not_waited_for() -> None:
    gone = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}).encode()
    binds = Binds(Reported())
    api = Script([event("MODIFIED", "a", 11)], [gone], [])
    with binds.following(api, "default"), pytest.raises(SystemExit, match="too old"):  # type: ignore[arg-type]
        binds.wait_for(2, 5.0)


@pytest.mark.parametrize(
    ("spec", "status", "ready"),
    [
        ({}, "True", 1),
        ({}, "False", 0),
        ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}, "True", 0),
    ],
)
def test_a_node_counts_when_it_is_ready_and_has_lost_its_first_taint(spec: Any, status: str, ready: int) -> None:
    node = {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": status}]}}
    page = json.dumps({"metadata": {}, "items": [node]}).encode()

    class Server(Script):
        def request(self, method: str, path: str, **more: Any) -> Answer:
            return Answer(200, page)

    assert ready_nodes(Server()) == ready  # type: ignore[arg-type]
