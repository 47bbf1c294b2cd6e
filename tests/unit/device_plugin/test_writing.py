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

PATH = pod_path("default", "a")


@pytest.fixture
def report(dgx1):
    return NodeReport("node-1", "uid-node", dgx1, "text")


@pytest.fixture
def pod(api, make_pod, dgx1):
    return read_pod(api.put(PATH, make_pod("a", 1, (dgx1.gpus[0].uuid,))))


def holds(dgx1, index):
    return {("default", "a"): frozenset({dgx1.gpus[index].uuid})}


def test_a_correction_is_told_once_even_while_the_watch_still_shows_the_old_set(api, report, pod, dgx1):
    counted = []
    corrector = PodCorrector(api, counted.append)
    for _ in range(3):
        corrector.correct(holds(dgx1, 5), [pod], report)
    assert api.objects[PATH]["metadata"]["annotations"]["kompakt.dev/gpus"] == dgx1.gpus[5].uuid
    assert len(api.made("create", "/events")) == len(counted) == 1


def test_a_pod_that_is_right_is_left_alone(api, report, pod, dgx1):
    PodCorrector(api).correct(holds(dgx1, 0), [pod], report)
    assert api.calls == []


@pytest.mark.parametrize("status", [403, 404, 409])
def test_a_pod_that_is_gone_or_another_by_now_stops_nothing(api, report, pod, dgx1, status):
    api.fail = lambda verb, path: error_of(status, b"{}") if verb == "apply" else None
    counted = []
    PodCorrector(api, counted.append).correct(holds(dgx1, 5), [pod], report)
    assert counted == []
    assert not api.made("create", "/events")


def test_an_api_server_in_trouble_is_the_callers_to_handle(api, report, pod, dgx1):
    api.fail = lambda verb, path: error_of(500, b"{}")
    with pytest.raises(Unreachable):
        PodCorrector(api).correct(holds(dgx1, 5), [pod], report)


def refusing(status):
    return lambda verb, path: error_of(status, b"{}") if verb == "create" else None


@pytest.mark.parametrize("error", [error_of(500, b"{}"), error_of(429, b"{}"), Unreachable("refused")])
def test_an_event_that_the_api_server_does_not_take_is_made_later_and_counted_once(api, report, pod, dgx1, error):
    counted = []
    corrector = PodCorrector(api, counted.append)
    api.fail = lambda verb, path: error if verb == "create" else None
    corrector.correct(holds(dgx1, 5), [pod], report)
    corrected = read_pod(api.objects[PATH])
    corrector.correct(holds(dgx1, 5), [corrected], report)
    api.calls.clear()
    api.fail = lambda verb, path: None
    corrector.correct(holds(dgx1, 5), [corrected], report)
    corrector.correct(holds(dgx1, 5), [corrected], report)
    (event,) = api.made("create", "/events")
    assert (event["reason"], event["involvedObject"]["name"], len(counted)) == ("GPUSetCorrected", "a", 1)


@pytest.mark.parametrize("status", [403, 404, 422])
def test_an_event_that_the_api_server_will_never_take_is_given_up(api, report, pod, dgx1, status, caplog):
    corrector = PodCorrector(api)
    api.fail = refusing(status)
    for _ in range(3):
        corrector.correct(holds(dgx1, 5), [pod], report)
    assert len(api.made("create", "/events")) == 1
    assert "the Event GPUSetCorrected about a is not made" in caplog.text


def told(number: int) -> Occurrence:
    return Occurrence(Regarding("v1", "Pod", "x", "u", "ns"), "Normal", "Any", "Testing", str(number))


def test_what_is_told_again_is_counted_at_the_event_that_stands_there(api):
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
    assert len(api.made("create", "/events")) == 2


def test_an_event_that_was_deleted_is_made_anew_without_a_word(api, caplog):
    now = [1000.0]
    events = EventRecorder(api, clock=lambda: now[0])
    events.owe(told(1))
    events.send()
    api.fail = lambda verb, path: error_of(404, b"{}") if verb == "merge" else None
    now[0] += WRITE_SECONDS
    events.owe(told(1))
    events.send()
    assert [event["count"] for event in api.made("create", "/events")] == [1, 2]
    assert caplog.text == ""


def test_events_are_made_in_order_and_the_oldest_go_first_when_there_are_too_many(api):
    events = EventRecorder(api)
    api.fail = refusing(500)
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


def test_a_later_pod_of_that_name_keeps_its_annotations(api, report, pod, make_pod, dgx1):
    api.put(PATH, {**make_pod("a", 1, (dgx1.gpus[0].uuid,)), "metadata": {**make_pod("a")["metadata"], "uid": "uid-later"}})
    PodCorrector(api).correct(holds(dgx1, 5), [pod], report)
    assert "kompakt.dev/gpus" not in api.objects[PATH]["metadata"]["annotations"]
