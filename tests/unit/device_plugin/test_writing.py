"""Corrections on pods, and the Events about them."""

import threading

import pytest

from kompakt_client.errors import Unreachable, error_of
from kompakt_client.events import WRITE_SECONDS, Occurrence, Regarding
from kompakt_device_plugin.api import pod_path
from kompakt_device_plugin.event_recorder import MAX_OWED, EventRecorder
from kompakt_device_plugin.pods import read_pod
from kompakt_device_plugin.report import NodeReport
from kompakt_device_plugin.writing import PodCorrector
from tests.support.device_plugin.api import pod_object
from tests.support.device_plugin.pods import ALL, GRAPH

PATH = pod_path("default", "a")


REPORT = NodeReport("node-1", "uid-node", GRAPH, "text")


class Correcting:
    """A pod with the first GPU written on it, and what kubelet says that it has."""

    def __init__(self, api):
        self.api, self.counted = api, []
        self.pod = read_pod(api.put(PATH, pod_object("a", 1, ALL[:1])))
        self.corrector = PodCorrector(api, self.counted.append)

    def correct(self, index=5):
        self.corrector.correct({("default", "a"): frozenset(ALL[index : index + 1])}, [self.pod], REPORT)

    def written(self):
        return self.api.objects[PATH]["metadata"]["annotations"].get("kompakt.dev/gpus")


@pytest.fixture
def correcting(api):
    return Correcting(api)


def refusing(error, verb="create"):
    return lambda was, path: error if was == verb else None


def test_a_correction_is_told_once_even_while_the_watch_still_shows_the_old_set(correcting, api):
    correcting.correct(index=0)
    assert api.calls == [], "a pod that is right is left alone"
    for _ in range(3):
        correcting.correct()
    assert correcting.written() == ALL[5]
    assert len(api.made("create", "/events")) == len(correcting.counted) == 1


@pytest.mark.parametrize("status", [403, 404, 409])
def test_a_pod_that_is_gone_or_another_by_now_stops_nothing(correcting, api, status):
    api.fail = refusing(error_of(status, b"{}"), "apply")
    correcting.correct()
    assert correcting.counted == []
    assert not api.made("create", "/events")


def test_an_api_server_in_trouble_is_the_callers_to_handle(correcting, api):
    api.fail = refusing(error_of(500, b"{}"), "apply")
    with pytest.raises(Unreachable):
        correcting.correct()


def test_a_later_pod_of_that_name_keeps_its_annotations(correcting, api):
    api.put(PATH, pod_object("a", 1, uid="uid-later"))
    correcting.correct()
    assert correcting.written() is None


@pytest.mark.parametrize("error", [error_of(500, b"{}"), error_of(429, b"{}"), Unreachable("refused")])
def test_an_event_that_the_api_server_does_not_take_is_made_later_and_counted_once(correcting, api, error):
    api.fail = refusing(error)
    correcting.correct()
    correcting.pod = read_pod(api.objects[PATH])
    correcting.correct()
    api.calls.clear()
    api.fail = lambda verb, path: None
    for _ in range(2):
        correcting.correct()
    (event,) = api.made("create", "/events")
    assert (event["reason"], event["involvedObject"]["name"], len(correcting.counted)) == ("GPUSetCorrected", "a", 1)


@pytest.mark.parametrize("status", [403, 404, 422])
def test_an_event_that_the_api_server_will_never_take_is_given_up(correcting, api, status, caplog):
    api.fail = refusing(error_of(status, b"{}"))
    for _ in range(3):
        correcting.correct()
    assert len(api.made("create", "/events")) == 1
    assert "the Event GPUSetCorrected about a is not made" in caplog.text


def told(number: int) -> Occurrence:
    return Occurrence(Regarding("v1", "Pod", "x", "u", "ns"), "Normal", "Any", "Testing", str(number))


def test_what_is_told_again_is_counted_at_the_event_that_stands_there_and_made_anew_where_it_was_deleted(api, caplog):
    now = [1000.0]
    events = EventRecorder(api, "node-1", clock=lambda: now[0])
    for number in (1, 1, 2, 1):
        events.owe(told(number))
        events.send()
    one, two = api.made("create", "/namespaces/ns/events")
    assert (one["message"], two["message"], one["reportingInstance"]) == ("1", "2", "node-1")
    assert not api.made("merge", "/events")
    now[0] += WRITE_SECONDS
    events.send()
    events.send()
    (counted,) = api.made("merge", f"/api/v1/namespaces/ns/events/{one['metadata']['name']}")
    assert counted["series"]["count"] == counted["count"] == 3
    api.fail = refusing(error_of(404, b"{}"), "merge")
    now[0] += WRITE_SECONDS
    events.owe(told(1))
    events.send()
    assert [event["count"] for event in api.made("create", "/events")] == [1, 1, 4]
    assert caplog.text == ""


def test_events_are_made_in_order_and_the_oldest_go_first_when_there_are_too_many(api):
    events = EventRecorder(api)
    api.fail = refusing(error_of(500, b"{}"))
    for number in range(MAX_OWED + 2):
        events.owe(told(number))
        events.send()
    api.fail = lambda verb, path: None
    api.calls.clear()
    events.send()
    assert [event["message"] for event in api.made("create", "/namespaces/ns/events")] == [str(n) for n in range(2, MAX_OWED + 2)]


def test_an_event_that_hangs_holds_nobody_up_and_is_not_sent_twice(api, until):
    events, let_go, begun = EventRecorder(api, seconds=0.05), threading.Event(), threading.Semaphore(0)

    def hang(verb, path):
        begun.release()
        let_go.wait()

    api.fail = hang
    events.owe(told(1))
    try:
        events.send()  # comes back although the call does not
        assert begun.acquire(timeout=1)
        events.owe(told(2))
        events.send()
        assert not begun.acquire(blocking=False)
    finally:
        let_go.set()
    assert begun.acquire(timeout=1)
    until(lambda: len(api.made("create", "/namespaces/ns/events")) == 2)
    assert [event["message"] for event in api.made("create", "/namespaces/ns/events")] == ["1", "2"]
