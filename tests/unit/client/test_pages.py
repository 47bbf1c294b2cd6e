"""Lists are read in pages bounded by bytes, whatever others put into the objects."""

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.errors import TooLong
from kompakt_client.objects import WatchedKind
from kompakt_client.pages import PageSize
from kompakt_client.reflector import Reflector
from kompakt_client.requests import Answer, ApiRequest
from kompakt_client.store import ObjectChange, StoredObject
from tests.support.client.api_server import Scripted, client_of, serving

MOST = 100_000


class Weighed:
    """An API server with objects of these sizes; it knows how many bytes of an answer were taken."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.items = [{"metadata": {"name": f"o{i}", "uid": f"u{i}"}, "text": "x" * size} for i, size in enumerate(sizes)]
        self.taken: list[int] = []
        self.refused = 0
        self.listed = threading.Event()

    def exchange(self, request: ApiRequest) -> Answer:
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        more = str(start + limit) if start + limit < len(self.items) else ""
        body = json.dumps({"metadata": {"resourceVersion": "5", "continue": more}, "items": self.items[start : start + limit]})
        if request.most_bytes is not None and len(body) > request.most_bytes:
            self.refused += 1
            raise TooLong("too long")
        self.taken.append(len(body))
        return Answer(200, body.encode())

    def watch(self, path: str, query: Any, silence: float) -> Any:
        self.listed.set()
        raise SystemExit  # the list is all that is tried here


class Names:
    def __init__(self) -> None:
        self.found: list[str] = []

    def replace(self, objects: Iterable[StoredObject[str]]) -> None:
        self.found = [one.name for one in objects]

    def change(self, changes: Sequence[ObjectChange[str]]) -> None:
        raise AssertionError(changes)


def listed(sizes: Sequence[int]) -> tuple[Weighed, list[str]]:
    server, names = Weighed(sizes), Names()
    kind = WatchedKind("things", "/api/v1/things", lambda raw: "", page_bytes=MOST)
    with pytest.raises(SystemExit):
        Reflector(server, kind, names).run()
    return server, sorted(names.found)


@given(st.lists(st.sampled_from([10, 100, 5_000, 50_000, 150_000]), max_size=40))
def test_every_object_is_read_and_no_page_has_more_bytes_than_allowed_but_of_one_object(sizes: list[int]) -> None:
    server, names = listed(sizes)
    assert names == sorted(f"o{i}" for i in range(len(sizes)))
    assert all(size <= MOST or size > 150_000 for size in server.taken)
    assert all(size < 151_000 for size in server.taken)


def test_small_objects_come_in_full_pages() -> None:
    server, names = listed([10] * 1200)
    assert (len(names), len(server.taken), server.refused) == (1200, 3, 0)


def test_after_large_objects_pages_grow_again() -> None:
    server, names = listed([50_000] * 10 + [10] * 1500)
    assert len(names) == 1510
    assert len(server.taken) < 40


def test_the_next_page_is_meant_to_have_half_of_what_is_taken() -> None:
    pages = PageSize(500, 1000)
    pages.came(10_000)
    assert pages.objects == 25
    pages.came(1)
    assert pages.objects == 500
    for _ in range(9):
        pages.too_long()
    assert (pages.objects, pages.most_bytes) == (1, None)


@pytest.fixture
def script() -> Iterator[Scripted]:
    with serving() as found:
        yield found


def test_an_answer_that_is_too_long_is_not_read_and_the_next_request_is_answered(script: Scripted) -> None:
    script.answers = [(200, {"text": "x" * 1_000_000}), (200, {"text": "y"})]
    client = client_of(script)
    with pytest.raises(TooLong, match="more than 1000 bytes"):
        client.exchange(ApiRequest("GET", "/a", most_bytes=1000))
    assert client.exchange(ApiRequest("GET", "/a", most_bytes=1000)).body == b'{"text": "y"}'
