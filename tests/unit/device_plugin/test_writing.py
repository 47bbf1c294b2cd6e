"""Corrections on pods, and the Events about them."""

import pytest

from kompakt_device_plugin.api import ApiException, pod_path
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
    api.fail = lambda verb, path: ApiException(status=status) if verb == "apply" else None
    counted = []
    PodCorrector(api, counted.append).correct(holds(dgx1, 5), [pod], report)
    assert counted == []
    assert not api.made("create", "/events")


def test_an_api_server_in_trouble_is_the_callers_to_handle(api, report, pod, dgx1):
    api.fail = lambda verb, path: ApiException(status=500)
    with pytest.raises(ApiException):
        PodCorrector(api).correct(holds(dgx1, 5), [pod], report)


def test_a_later_pod_of_that_name_keeps_its_annotations(api, report, pod, make_pod, dgx1):
    api.put(PATH, {**make_pod("a", 1, (dgx1.gpus[0].uuid,)), "metadata": {**make_pod("a")["metadata"], "uid": "uid-later"}})
    PodCorrector(api).correct(holds(dgx1, 5), [pod], report)
    assert "kompakt.dev/gpus" not in api.objects[PATH]["metadata"]["annotations"]
