"""A gang that waits for places has no pods; it gets them when it has places, or where the planner does not answer."""

from typing import Any

import pytest

from kompakt_core.contract.conditions import Type, condition
from kompakt_core.contract.scheduling_record import PODS_NOT_CREATED
from kompakt_core.job import actions
from kompakt_core.job import to_do as do
from tests.support.core.job_world import World, make_job

PATIENCE = 30.0
PLACES = {"plan": {"level": "Machine"}}


@pytest.fixture
def waiting() -> World:
    return World(make_job(), planner_patience=PATIENCE).settle()


def test_a_job_is_shown_to_the_planner_before_it_has_pods(waiting: World) -> None:
    assert not waiting.pods
    assert not waiting.services
    assert waiting.history[-1] == do.AskForPlaces(1)
    assert waiting.stored["expectedPods"]["attempt"] == waiting.status.attempt == 1
    assert waiting.status.phase == "Pending"


@pytest.mark.parametrize("state", ["Waiting", "Reserved", "Withdrawn"])
def test_it_waits_as_long_as_the_planner_says_so(waiting: World, state: str) -> None:
    waiting.planned(state)
    waiting.now += 100 * PATIENCE
    assert not waiting.settle().pods


def test_it_gets_its_pods_with_its_places_without_a_second_dry_run(waiting: World) -> None:
    waiting.planned("Reserved", **PLACES)
    assert len(waiting.pods) == 2
    assert waiting.services
    assert not any(isinstance(action, do.TryPod) for action in waiting.history)


def test_places_of_an_earlier_attempt_are_none(waiting: World) -> None:
    waiting.planned("Reserved", **PLACES).run().fail()
    assert waiting.status.attempt == 2
    assert not waiting.pods
    assert waiting.stored["expectedPods"]["attempt"] == 2


def test_pods_come_first_where_the_planner_does_not_answer(waiting: World) -> None:
    assert do.Wake(1000.0 + PATIENCE) in waiting.look()
    waiting.now += PATIENCE - 1
    assert not waiting.settle().pods
    waiting.now += 1
    assert len(waiting.settle().pods) == 2


def test_pods_come_first_where_the_clock_was_set_back(waiting: World) -> None:
    waiting.now -= 3600
    assert len(waiting.settle().pods) == 2


def test_pods_come_first_where_the_api_server_was_not_asked_in_vain(waiting: World) -> None:
    waiting.stored["expectedPods"] = {"attempt": 1, "since": "1970-01-01T00:16:40Z", "reason": "Kueue has to admit the pods"}
    assert len(waiting.settle().pods) == 2


def test_pods_that_came_too_late_come_without_places(waiting: World) -> None:
    waiting.planned("Waiting", reason=PODS_NOT_CREATED)
    assert len(waiting.pods) == 2


def test_a_gang_of_which_a_part_exists_is_completed(waiting: World) -> None:
    waiting.planned("Reserved", **PLACES)
    del waiting.pods["j-worker-1-a1"]
    waiting.planned("Waiting")
    assert len(waiting.pods) == 2


def test_what_pods_ask_for_is_told_until_they_have_nodes(waiting: World) -> None:
    waiting.planned("Reserved", **PLACES)
    assert waiting.stored["expectedPods"]
    waiting.planned("Released", **PLACES).bound().settle()
    assert "expectedPods" not in waiting.stored


@pytest.mark.parametrize("end", ["suspend", "fail"])
def test_it_is_told_no_longer_of_a_job_that_has_stopped(end: str) -> None:
    world = World(make_job(runPolicy={"backoffLimit": 0}), planner_patience=PATIENCE).settle()
    if end == "suspend":
        world.suspend()
    else:
        world.planned("Reserved", **PLACES)
        world.change(gated=False).fail()
    assert "expectedPods" not in world.stored


def test_no_places_are_kept_for_pods_that_cannot_be_made(waiting: World) -> None:
    waiting.planned("Reserved", **PLACES)
    told = condition(Type.RECONCILING, True, "QuotaExceeded", "no room")
    pods = list(waiting.pods.values())
    for action in actions.rejected(waiting.job, waiting.status, pods, told, waiting.now, final=False):
        waiting.perform(action)
    assert not waiting.pods
    assert "expectedPods" not in waiting.stored
    waiting.settle()
    assert waiting.condition(Type.RECONCILING) == ("True", "WorkersNotRunning")


def test_the_pods_of_the_attempt_before_go_first(waiting: World) -> None:
    waiting.planned("Reserved", **PLACES).run()
    waiting.change_one(0, deleting=True)
    leaving: Any = waiting.look()
    assert not any(isinstance(action, do.AskForPlaces) for action in leaving)
