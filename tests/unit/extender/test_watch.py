"""List and watch against a real HTTP server that misbehaves as API servers and networks do."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from kompakt_client.connections import plain
from kompakt_client.transport import ApiClient
from kompakt_core.errors import TryLater
from kompakt_extender.cluster import Resource, Watcher


class Script:
    """What the server answers: one list per list call, one list of lines per watch call; the last watch stays open."""

    def __init__(self) -> None:
        self.lists: list[Any] = []
        self.watches: list[Any] = []
        self.calls: list[dict[str, str]] = []
        self.done = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def do_GET(self) -> None:
        query = {key: value[0] for key, value in parse_qs(urlparse(self.path).query).items()}
        self.script.calls.append(query)
        if "watch" in query:
            self._watch()
        else:
            answer = self.script.lists.pop(0)
            code = answer.pop("_code", 200)
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _watch(self) -> None:
        lines = self.script.watches.pop(0) if self.script.watches else None
        if isinstance(lines, int):
            self.send_response(lines)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines or ():
            if line == "cut":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        if lines is None:
            self.script.done.wait(5)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[Script, ApiClient]]:
    script = Script()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"script": script}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    endpoint = plain(f"http://127.0.0.1:{server.server_port}")
    yield script, ApiClient(endpoint)
    script.done.set()
    server.shutdown()
    server.server_close()


class Seen:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        self.lists = 0
        self.changed = asyncio.Event()

    def replace(self, views: Mapping[str, str]) -> None:
        self.now = dict(views)
        self.lists += 1
        self.changed.set()

    def set(self, key: str, view: str) -> None:
        self.now[key] = view
        self.changed.set()

    def remove(self, key: str) -> None:
        self.now.pop(key, None)
        self.changed.set()

    async def until(self, wanted: Callable[["Seen"], bool]) -> None:
        async with asyncio.timeout(20):
            while not wanted(self):
                self.changed.clear()
                await self.changed.wait()


def item(name: str, version: int, text: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, "text": text}


def listed(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def event(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": made}


def text_of(raw: bytes) -> str:
    text = json.loads(raw)["text"]
    if text == "broken":
        raise ValueError("cannot read this one")
    return str(text)


async def follow(server: tuple[Script, ApiClient], wanted: Callable[[Seen], bool]) -> Seen:
    seen = Seen()
    watcher = Watcher(server[1], Resource("things", "/things", text_of, by_name=True), seen, lambda name: None)
    watcher.start()
    try:
        await seen.until(wanted)
    finally:
        watcher.stop()
    return seen


async def test_pages_are_read_to_the_end_and_changes_followed_from_there(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [listed(5, item("a", 1, "1"), more="next"), listed(5, item("b", 2, "2"))]
    script.watches = [
        [event("MODIFIED", item("a", 6, "new")), event("DELETED", item("b", 7)), event("ADDED", item("c", 8, "3"))],
        None,
    ]
    seen = await follow(server, lambda seen: "c" in seen.now)
    assert seen.now == {"a": "new", "c": "3"}
    assert script.calls[1]["continue"] == "next"
    assert script.calls[2]["resourceVersion"] == "5"


async def test_a_watch_goes_on_from_the_last_version_bookmarks_included(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [listed(5)]
    script.watches = [
        [event("BOOKMARK", {"metadata": {"resourceVersion": "90"}})],
        [event("ADDED", item("a", 91, "1"))],
        None,
    ]
    seen = await follow(server, lambda seen: "a" in seen.now)
    watches = [call["resourceVersion"] for call in script.calls if "watch" in call]
    assert watches[:2] == ["5", "90"]
    assert seen.lists == 1


@pytest.mark.parametrize("gone", [410, [event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})]])
async def test_a_version_too_old_means_reading_everything_anew(server: tuple[Script, ApiClient], gone: Any) -> None:
    script, _ = server
    script.lists = [listed(5, item("a", 1, "1")), listed(50, item("b", 40, "2"))]
    script.watches = [gone, None]
    seen = await follow(server, lambda seen: "b" in seen.now)
    assert seen.now == {"b": "2"}
    assert [call.get("resourceVersion") for call in script.calls][:3] == [None, "5", None]


async def test_a_connection_cut_in_the_middle_of_a_line_loses_nothing(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [listed(5)]
    half = json.dumps(event("ADDED", item("a", 6, "1"))).encode()
    script.watches = [[half[:20], "cut"], [event("ADDED", item("a", 6, "1"))], None]
    seen = await follow(server, lambda seen: "a" in seen.now)
    assert seen.lists == 1


async def test_a_line_in_two_chunks_is_one_event(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [listed(5)]
    line = json.dumps(event("ADDED", item("a", 6, "1"))).encode() + b"\n"
    script.watches = [[line[:33], line[33:]], None]
    assert (await follow(server, lambda seen: "a" in seen.now)).now == {"a": "1"}


async def test_an_object_that_cannot_be_read_is_left_out_and_the_rest_goes_on(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [listed(5, item("bad", 1, "broken"), item("good", 2, "1"))]
    script.watches = [[event("MODIFIED", item("good", 6, "broken")), event("ADDED", item("c", 7, "3"))], None]
    assert (await follow(server, lambda seen: "c" in seen.now)).now == {"c": "3"}


async def test_a_server_in_trouble_is_asked_again(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [{"_code": 503, "message": "etcd"}, listed(5, item("a", 1, "1"))]
    assert (await follow(server, lambda seen: "a" in seen.now)).lists == 1


async def test_a_list_whose_pages_expired_begins_again(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [listed(5, item("a", 1, "1"), more="next"), {"_code": 410}, listed(9, item("b", 8, "2"))]
    assert (await follow(server, lambda seen: "b" in seen.now)).now == {"b": "2"}


def test_no_answer_is_told_from_a_refusal(server: tuple[Script, ApiClient]) -> None:
    script, api = server
    script.lists = [{"_code": 404, "message": "no such thing"}, {"_code": 500, "message": "oops"}]
    answer = api.request("GET", "/x")
    assert (answer.status, answer.message) == (404, "no such thing")
    with pytest.raises(TryLater, match="oops"):
        api.request("GET", "/x")


async def test_an_error_that_is_not_410_goes_on_from_where_it_was(server: tuple[Script, ApiClient]) -> None:
    script, _ = server
    script.lists = [listed(5)]
    script.watches = [
        [event("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})],
        [event("ADDED", item("a", 6, "1"))],
        None,
    ]
    seen = await follow(server, lambda seen: "a" in seen.now)
    assert seen.lists == 1
    assert [call.get("resourceVersion") for call in script.calls][:3] == [None, "5", "5"]


async def test_who_follows_a_restored_etcd_is_told_to_begin_anew(server: tuple[Script, ApiClient]) -> None:
    script, api = server
    script.lists = [listed(50, item("a", 40, "1")), listed(20, item("b", 10, "2"))]
    script.watches = [410, None]
    why: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    seen = Seen()
    watcher = Watcher(api, Resource("things", "/things", text_of, by_name=True), seen, lambda name: None, why.set_result)
    watcher.start()
    try:
        async with asyncio.timeout(20):
            said = await why
    finally:
        watcher.stop()
    assert seen.now == {"a": "1"}, "nothing of the other history is mixed in"
    assert "version 20, but 50 was seen" in said


class Haunted(Seen):
    """Somebody else writes into the sink as well: after the first list, an object that is no more."""

    def replace(self, views: Mapping[str, str]) -> None:
        super().replace(views)
        if self.lists == 1:
            self.now["ghost"] = "from a late answer"


async def test_each_list_mends_what_others_wrote_into_the_sink(server: tuple[Script, ApiClient]) -> None:
    script, api = server
    script.lists = [listed(5, item("a", 1, "1")), listed(50, item("a", 1, "1"))]
    script.watches = [410, None]
    seen = Haunted()
    watcher = Watcher(api, Resource("things", "/things", text_of, by_name=True), seen, lambda name: None)
    watcher.start()
    try:
        await seen.until(lambda seen: seen.lists == 2)
    finally:
        watcher.stop()
    assert seen.now == {"a": "1"}
