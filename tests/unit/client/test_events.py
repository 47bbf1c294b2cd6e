"""Events told again are one Event with a count, with few writes, whatever else is told meanwhile and whatever the answers are."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.errors import ApiError, Unreachable, error_of
from kompakt_client.events import (
    MAX_SERIES,
    WINDOW_SECONDS,
    WRITE_SECONDS,
    EventCorrelator,
    EventOutcome,
    EventWrite,
    Occurrence,
    Regarding,
)

JOB = Regarding("kompakt.dev/v1", "TrainingJob", "j", "u", "ml")
EXISTS = error_of(409, json.dumps({"code": 409, "reason": "AlreadyExists"}).encode())


def said(note: str = "n", about: Regarding = JOB, reason: str = "Suspended") -> Occurrence:
    return Occurrence(about, "Normal", reason, "Reconciling", note)


def correlator(most: int = MAX_SERIES) -> EventCorrelator:
    return EventCorrelator("kompakt-operator", "pod-a", most)


class Server:
    """Events by path and name, and when each was written. `error` is the next answer; `done`: the write is done all the same."""

    def __init__(self, events: EventCorrelator) -> None:
        self.events, self.objects = events, dict[str, dict[str, Any]]()
        self.writes = list[tuple[str, float]]()
        self.error: ApiError | None = None
        self.done = False

    @property
    def counts(self) -> list[int]:
        return [event["count"] for event in self.objects.values()]

    def hears(self, *moments: float) -> None:
        """The same is told at these moments, and written when that is allowed."""
        for now in moments:
            self.events.tell(said(), now)
            self.flush(now)

    def flush(self, now: float) -> None:
        while (write := self.events.take(now)) is not None:
            if self.events.answered(write, self._answer(write, now), now) is EventOutcome.LATER:
                return

    def _answer(self, write: EventWrite, now: float) -> ApiError | None:
        error, self.error = self.error, None
        if error is None or self.done:
            error = self._perform(write, now) or error
        return error

    def _perform(self, write: EventWrite, now: float) -> ApiError | None:
        where = f"{write.said.path}/{write.name}"
        if write.creates and where in self.objects:
            return EXISTS
        if not write.creates and where not in self.objects:
            return error_of(404, b'{"reason": "NotFound"}')
        assert write.path == (write.said.path if write.creates else where)
        self.objects[where] = self.objects.get(where, {}) | write.body
        self.writes.append((where, now))
        return None


@pytest.fixture
def server() -> Server:
    return Server(correlator())


def test_the_first_is_an_event_of_its_own_and_the_next_ones_are_its_series(server: Server) -> None:
    server.hears(1000.0, 1001.0, 1002.5)
    ((path, event),) = server.objects.items()
    assert path.startswith("/api/v1/namespaces/ml/events/j.")
    named = {"name": "j", "uid": "u", "namespace": "ml"}
    assert event["involvedObject"] == {"apiVersion": "kompakt.dev/v1", "kind": "TrainingJob", **named}
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Suspended", "n")
    assert event["count"] == 1
    assert "series" not in event
    server.flush(1000.0 + WRITE_SECONDS)
    event = server.objects[path]
    assert event["series"] == {"count": 3, "lastObservedTime": "1970-01-01T00:16:42.500000Z"}
    assert event["count"] == 3
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("1970-01-01T00:16:40Z", "1970-01-01T00:16:42Z")
    assert len(server.writes) == 2


def test_what_the_api_server_wants_beside_an_event_time_is_there() -> None:
    events = EventCorrelator("kompakt-device-plugin", "n" * 253)
    events.tell(said("ä" * 1024, Regarding("v1", "Node", "n" * 253, "u")), 0.0)
    write = events.take(0.0)
    assert write is not None
    body = write.body
    assert body["eventTime"] == "1970-01-01T00:00:00.000000Z"
    assert body["action"] == "Reconciling"
    assert (body["reportingComponent"], len(body["reportingInstance"])) == ("kompakt-device-plugin", 128)
    assert len(body["message"].encode()) == 1024
    assert len(body["metadata"]["name"]) <= 253
    assert body["metadata"]["namespace"] == "default"
    assert "namespace" not in body["involvedObject"]


def test_after_six_minutes_of_silence_the_same_is_a_new_event(server: Server) -> None:
    server.hears(0.0, WINDOW_SECONDS, 2 * WINDOW_SECONDS, 3 * WINDOW_SECONDS + 1)
    assert server.counts == [3, 1]
    assert len(server.events) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_what_is_refused_for_good_is_given_up_and_told_anew_the_next_time(server: Server, status: int) -> None:
    server.error = error_of(status, b"{}")
    server.hears(0.0)
    assert len(server.events) == 0
    server.hears(1.0)
    assert server.counts == [1]


def test_where_patches_are_forbidden_each_time_is_an_event_as_before_series(server: Server) -> None:
    server.hears(0.0)
    server.error = error_of(403, b"{}")
    server.hears(20.0, 40.0)
    assert server.counts == [1, 1]


def test_an_event_that_was_deleted_meanwhile_is_made_anew_with_its_count(server: Server) -> None:
    for now in (0.0, 100.0):
        server.hears(now)
        server.objects.clear()
    server.hears(200.0)
    assert [(event["count"], event["series"]["count"]) for event in server.objects.values()] == [(3, 3)]


def test_while_a_write_is_under_way_nobody_takes_it_again() -> None:
    events = correlator()
    events.tell(said(), 0.0)
    write = events.take(0.0)
    assert write is not None
    events.tell(said(), 1.0)
    assert events.take(100.0) is None
    events.answered(write, None, 2.0)
    again = events.take(100.0)
    assert again is not None
    assert (again.count, again.creates) == (2, False)


def test_an_answer_about_an_event_that_was_forgotten_meanwhile_changes_no_other() -> None:
    events = correlator(most=1)
    events.tell(said(), 0.0)
    write = events.take(0.0)
    assert write is not None
    events.tell(said("other"), 1.0)
    events.tell(said(), 2.0)
    events.answered(write, error_of(422, b"{}"), 3.0)
    fresh = events.take(3.0)
    assert fresh is not None
    assert (fresh.said, fresh.creates) == (said(), True)
    assert fresh.name != write.name


def test_a_clock_that_is_put_back_holds_no_count_up(server: Server) -> None:
    server.hears(1e9, 5e8)
    assert server.counts == [2]


@given(st.lists(st.integers(0, 30), max_size=60))
def test_memory_is_bounded_and_the_newest_are_kept(notes: list[int]) -> None:
    events = correlator(most=4)
    for now, note in enumerate(notes):
        events.tell(said(str(note)), float(now))
        assert len(events) <= 4
    kept = set[str]()
    while (write := events.take(1000.0)) is not None:
        kept.add(write.said.note)
        events.answered(write, None, 1000.0)
    newest = list(dict.fromkeys(str(note) for note in reversed(notes)))[:4]
    assert kept == set(newest)


TROUBLE = [None, None, None, Unreachable("gone"), error_of(500, b"{}"), error_of(429, b"{}"), error_of(409, b"{}")]
STEPS = st.tuples(
    st.sampled_from(["a", "b", "c"]),  # which of three Events
    st.sampled_from([0.0, 0.5, WRITE_SECONDS, WINDOW_SECONDS / 2, WINDOW_SECONDS, WINDOW_SECONDS + 1]),  # later by
    st.sampled_from(TROUBLE),
    st.booleans(),  # done although the answer was an error
)


@given(st.lists(STEPS, max_size=40))
def test_in_any_order_there_is_one_object_for_each_series_and_its_count_is_what_was_told(
    steps: list[tuple[str, float, ApiError | None, bool]],
) -> None:
    events, now = correlator(), 1e9
    server, told = Server(events), dict[str, list[float]]()
    for note, later, server.error, server.done in steps:
        now += later
        events.tell(said(note), now)
        told.setdefault(note, []).append(now)
        server.flush(now)
        for name, moments in told.items():
            found = [event for event in server.objects.values() if event["message"] == name]
            assert sum(event["count"] for event in found) <= len(moments)
            assert len(found) <= 1 + sum(after - before > WINDOW_SECONDS for before, after in pairwise(moments))
    server.error = None
    server.flush(now + WRITE_SECONDS)
    server.flush(now + 2 * WRITE_SECONDS)
    for name, moments in told.items():
        found = [event for event in server.objects.values() if event["message"] == name]
        assert sum(event["count"] for event in found) == len(moments)
        assert all(event.get("series", {}).get("count", 1) == event["count"] for event in found)
    for where in server.objects:
        writes = [at for path, at in server.writes if path == where]
        assert all(after - before >= WRITE_SECONDS for before, after in pairwise(writes))
