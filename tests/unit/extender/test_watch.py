"""List and watch against a real HTTP server that misbehaves as API servers and networks do: what reaches the sink."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlparse

import pytest

from kompakt_extender.cluster import Resource, Watcher
from tests.support.client.api_server import CUT, OPEN, Scripted, client_of, serving


@pytest.fixture
def script() -> Iterator[Scripted]:
    with serving() as found:
        yield found


class Seen:
    """A sink that remembers. `haunted`: somebody else writes into it as well, after the first list, an object that is no more."""

    def __init__(self, *, haunted: bool = False) -> None:
        self.now: dict[str, str] = {}
        self.lists = 0
        self.haunted = haunted
        self.changed = asyncio.Event()

    def replace(self, views: Mapping[str, str]) -> None:
        self.now = dict(views) | ({"ghost": "from a late answer"} if self.haunted and not self.lists else {})
        self.lists += 1
        self.changed.set()

    def set(self, key: str, view: str) -> None:
        self.now[key] = view
        self.changed.set()

    def remove(self, key: str) -> None:
        self.now.pop(key, None)
        self.changed.set()

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not wanted():
                self.changed.clear()
                await self.changed.wait()


def item(name: str, version: int, text: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, "text": text}


def listed(version: int, *items: dict[str, Any], more: str = "") -> tuple[int, dict[str, Any]]:
    return 200, {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def event(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": made}


def error(code: int) -> dict[str, Any]:
    return event("ERROR", {"kind": "Status", "code": code, "message": "etcd"})


def text_of(raw: bytes) -> str:
    text = json.loads(raw)["text"]
    if text == "broken":
        raise ValueError("cannot read this one")
    return str(text)


@contextmanager
def watching(script: Scripted, seen: Seen, left: Callable[[str], None] | None = None) -> Iterator[None]:
    watcher = Watcher(client_of(script), Resource("things", "/things", text_of, by_name=True), seen, lambda name: None, left)
    watcher.start()
    try:
        yield
    finally:
        watcher.stop()


def queries(script: Scripted, key: str) -> list[str | None]:
    """What each request asked for under this name."""
    return [parse_qs(urlparse(path).query).get(key, [None])[0] for _, path, _, _ in script.asked]


class Row(NamedTuple):
    """What the server answers, one request after the other; what is known then, after so many lists; and `since` which versions
    was asked."""

    answers: list[Any]
    now: dict[str, str]
    lists: int = 1
    since: list[str | None] | None = None


A, B, A6 = item("a", 1, "1"), item("b", 40, "2"), event("ADDED", item("a", 6, "1"))
HALF = json.dumps(A6).encode()[:20]
ROWS = {
    "pages are read to the end and changes followed from there": Row(
        [
            listed(5, A, more="next"),
            listed(5, item("b", 2, "2")),
            [event("MODIFIED", item("a", 6, "new")), event("DELETED", item("b", 7)), event("ADDED", item("c", 8, "3"))],
        ],
        {"a": "new", "c": "3"},
        since=[None, None, "5"],
    ),
    "a watch goes on from the last version, bookmarks included": Row(
        [listed(5), [event("BOOKMARK", {"metadata": {"resourceVersion": "90"}})], [event("ADDED", item("a", 91, "1"))]],
        {"a": "1"},
        since=[None, "5", "90"],
    ),
    "410 Gone means reading everything anew": Row(
        [listed(5, A), (410, {}), listed(50, B)], {"b": "2"}, lists=2, since=[None, "5", None]
    ),
    "so does 410 on the watch itself": Row([listed(5, A), [error(410)], listed(50, B)], {"b": "2"}, 2, [None, "5", None]),
    "another error goes on from where it was": Row(
        [listed(5), [error(500)], listed(5), [A6]], {"a": "1"}, since=[None, "5", None, "5"]
    ),
    "a connection cut in the middle of a line loses nothing": Row([listed(5), [HALF, CUT], listed(5), [A6]], {"a": "1"}),
    "an object that cannot be read is left out and the rest goes on": Row(
        [
            listed(5, item("bad", 1, "broken"), item("good", 2, "1")),
            [event("MODIFIED", item("good", 6, "broken")), event("ADDED", item("c", 7, "3"))],
        ],
        {"c": "3"},
    ),
    "a server in trouble is asked again": Row([(503, {"message": "etcd"}), listed(5, A)], {"a": "1"}),
    "a list whose pages expired begins again": Row([listed(5, A, more="next"), (410, {}), listed(9, B)], {"b": "2"}),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_what_reaches_the_sink(script: Scripted, row: Row) -> None:
    script.answers = [*row.answers, OPEN]
    seen = Seen()
    with watching(script, seen):
        await seen.until(lambda: seen.now == row.now)
    assert seen.lists == row.lists
    if row.since is not None:
        assert queries(script, "resourceVersion")[: len(row.since)] == row.since
    if row.answers[0][1].get("metadata", {}).get("continue"):
        assert queries(script, "continue")[:2] == [None, "next"]


async def test_who_follows_a_restored_etcd_is_told_to_begin_anew(script: Scripted) -> None:
    script.answers = [listed(50, A), (410, {}), listed(20, B), OPEN]
    why: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    seen = Seen()
    with watching(script, seen, why.set_result):
        async with asyncio.timeout(20):
            said = await why
    assert seen.now == {"a": "1"}, "nothing of the other history is mixed in"
    assert "version 20, but 50 was seen" in said


async def test_each_list_mends_what_others_wrote_into_the_sink(script: Scripted) -> None:
    script.answers = [listed(5, A), (410, {}), listed(50, A), OPEN]
    seen = Seen(haunted=True)
    with watching(script, seen):
        await seen.until(lambda: seen.lists == 2)
    assert seen.now == {"a": "1"}
