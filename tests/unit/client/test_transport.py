"""Requests over real HTTP: which are repeated, which error an answer stands for, and what a broken watch says."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from kompakt_client.connections import Endpoint, plain
from kompakt_client.credentials import Credentials
from kompakt_client.errors import (
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Rejected,
    Throttled,
    Unreachable,
    error_of,
    explained,
)
from kompakt_client.requests import ApiRequest, Query
from kompakt_client.transport import ApiClient
from kompakt_core.errors import TryLater
from tests.support.client.api_server import CUT, OPEN, Scripted, client_of, serving

WATCH: Query = {"resourceVersion": "1"}


@pytest.fixture
def script() -> Iterator[Scripted]:
    with serving() as found:
        yield found


@pytest.mark.parametrize(
    ("status", "kind", "later"),
    [
        (400, Invalid, False),
        (401, Unreachable, True),
        (403, Forbidden, False),
        (404, NotFound, False),
        (408, Unreachable, True),
        (409, Conflict, False),
        (410, Expired, False),
        (418, Invalid, False),
        (422, Invalid, False),
        (429, Throttled, True),
        (500, Unreachable, True),
        (503, Unreachable, True),
    ],
)
def test_every_status_stands_for_one_error_of_the_tree(status: int, kind: type[ApiError], later: bool) -> None:
    error = error_of(status, b'{"kind": "Status", "reason": "R", "message": "own words"}')
    assert type(error) is kind
    assert isinstance(error, TryLater) is later
    assert (error.status, error.reason, str(error)) == (status, "R", "own words")
    assert explained(error) == f"{status} R own words"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b'{"message": 7}'])
def test_an_error_that_is_no_status_object_still_has_its_status(body: bytes) -> None:
    error = error_of(503, body)
    assert isinstance(error, Unreachable)
    assert (error.status, str(error)) == (503, "HTTP 503")
    assert error_of(200, body) is None


def test_a_kind_that_is_not_served_is_told_from_an_object_that_is_not_there() -> None:
    unserved, missing = error_of(404, b"404 page not found\n"), error_of(404, b'{"reason": "NotFound", "message": "m"}')
    assert isinstance(unserved, NotFound)
    assert isinstance(missing, NotFound)
    assert (unserved.served, missing.served) == (False, True)
    assert "knows no such kind" in str(unserved)


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("9999", 60.0), ("Mon, 23 Nov 2026", 1.0), ("", 1.0), ("-1", 1.0)])
def test_the_server_says_when_to_try_again(header: str, seconds: float) -> None:
    error = error_of(429, b"", {"retry-after": header})
    assert isinstance(error, Throttled)
    assert error.seconds == seconds


@pytest.mark.parametrize("status", [400, 403, 409, 422])
def test_what_a_proxy_says_is_no_word_of_the_api_servers(status: int) -> None:
    """A gang must not fail for good because something before the API server answers with a page."""
    assert isinstance(error_of(status, b"<html>no</html>"), Unreachable)
    assert isinstance(error_of(status, b'{"message": "no"}'), Rejected)
    assert isinstance(error_of(status, b""), Rejected)


ALREADY = (409, {"reason": "AlreadyExists", "message": "there"})


@pytest.mark.parametrize(
    ("method", "answers", "found", "asked", "slept"),
    [
        ("GET", [(429, {}, {"Retry-After": "4"}), (503, {}), (200, {"a": 1})], {"a": 1}, 3, [4.0, 1.0]),
        ("GET", [(503, {"message": "down"})], (Unreachable, "down"), 3, [1.0, 1.0]),
        ("GET", [ALREADY], (Conflict, "there"), 1, []),
        # A thread that must show that it lives does not sleep for so long.
        ("GET", [(429, {}, {"Retry-After": "6"}), (200, {})], (Throttled, "HTTP 429"), 1, []),
        ("POST", [(500, {"message": "etcd"}), (201, {})], (Unreachable, "etcd"), 1, []),
        ("POST", [CUT, (201, {})], (Unreachable, "/a: "), 1, []),
        ("POST", [(429, {}), (201, {"a": 1})], {"a": 1}, 2, [1.0]),
    ],
    ids=[
        "a read is repeated and waits as long as the server says",
        "a third failure is told",
        "what is refused is not repeated",
        "a long wait that the server asks for is left to the caller",
        "a write of unknown outcome is never repeated",
        "a write whose answer is lost is never repeated",
        "a write that surely was not done is repeated",
    ],
)
def test_what_is_repeated(script: Scripted, method: str, answers: Any, found: Any, asked: int, slept: list[float]) -> None:
    script.answers, pauses = answers, list[float]()
    api = client_of(script, sleep=pauses.append, random=lambda: 0.0)
    if isinstance(found, dict):
        assert api.json(ApiRequest(method, "/a", body={})) == found
    else:
        with pytest.raises(found[0], match=found[1]) as raised:
            api.json(ApiRequest(method, "/a", body={}))
        assert getattr(raised.value, "exists", True)
        assert not isinstance(raised.value, Throttled) or raised.value.seconds == 6.0
    assert (len(script.asked), pauses) == (asked, slept)


def test_selectors_bodies_and_kinds_go_over_the_wire(script: Scripted) -> None:
    script.answers = [(200, {})]
    api = client_of(script, agent="me")
    api.list("/pods", {"fieldSelector": "spec.nodeName=node-1"})
    api.apply("/pods/a", {"kind": "Pod"}, manager="me")
    (_, listed, _, _), (verb, applied, headers, body) = script.asked
    assert listed == "/pods?fieldSelector=spec.nodeName%3Dnode-1"
    assert (verb, applied) == ("PATCH", "/pods/a?fieldManager=me&force=true")
    assert (headers["Content-Type"], headers["User-Agent"], body) == ("application/apply-patch+yaml", "me", b'{"kind":"Pod"}')


class Renewable(Credentials):
    """Each renewal is another token."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.number}"}

    def renew(self, refused: object) -> bool:
        self.number += 1
        return True


def test_credentials_that_ran_out_are_renewed_once(script: Scripted) -> None:
    pool = urllib3.PoolManager()
    api = ApiClient(Endpoint(script.address, lambda *pair: pool, Renewable()))
    script.answers = [(401, {}), (200, {})]
    api.exchange(ApiRequest("POST", "/a", body={}))
    assert [headers["Authorization"] for _, _, headers, _ in script.asked] == ["Bearer 0", "Bearer 1"]
    script.answers = [(401, {"message": "who?"})]
    with pytest.raises(Unreachable, match="who"):
        api.exchange(ApiRequest("GET", "/a"))
    assert len(script.asked) == 4


def test_a_line_in_two_chunks_is_one_event(script: Scripted) -> None:
    script.answers = [[b'{"type": "AD', b'DED"}\n{"ty', b'pe": 1}\n']]
    assert [line for lines in client_of(script).watch("/a", WATCH, 5.0).batches() for line in lines] == [
        b'{"type": "ADDED"}',
        b'{"type": 1}',
    ]
    assert "watch=true" in script.asked[0][1]


def test_half_a_line_before_the_end_is_no_event(script: Scripted) -> None:
    script.answers = [[b'{"type": "ADDED"}\n{"type"', CUT]]
    stream = client_of(script).watch("/a", WATCH, 5.0).batches()
    assert next(stream) == [b'{"type": "ADDED"}']
    with pytest.raises(Unreachable, match="stream broken"):
        next(stream)


def test_a_watch_is_stopped_from_another_thread(script: Scripted) -> None:
    script.answers = [OPEN]
    stream = client_of(script).watch("/a", WATCH, 60.0)
    threading.Timer(0.1, stream.stop).start()
    began = time.monotonic()
    with contextlib.suppress(Unreachable):
        list(stream.batches())
    assert time.monotonic() - began < 4.0, "the server keeps it open for five seconds"


def test_a_watch_that_is_refused_says_by_which_error(script: Scripted) -> None:
    script.answers = [(410, {"reason": "Expired", "message": "too old"})]
    with pytest.raises(Expired, match="too old"):
        client_of(script).watch("/a", WATCH, 5.0)


def test_an_answer_that_is_no_json_is_no_answer(script: Scripted) -> None:
    script.answers = [(200, b"<html>")]
    with pytest.raises(Unreachable, match="no JSON"):
        client_of(script).get("/a")


def test_an_address_that_answers_nothing_costs_no_more_than_the_request_may_take() -> None:
    """Its queue of connections is full, so the kernel drops further ones as a dead host would."""
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        api: Any = ApiClient(plain(f"http://127.0.0.1:{deaf.getsockname()[1]}"))
        began = time.monotonic()
        with pytest.raises(Unreachable):
            api.exchange(ApiRequest("GET", "/pods", seconds=0.2))
        assert time.monotonic() - began < 4, "connecting alone may take five seconds"
