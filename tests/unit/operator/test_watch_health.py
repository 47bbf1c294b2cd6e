"""What other answers of the API server say against a watch."""

from typing import Any

import pytest

from kompakt_client.errors import Unreachable, rejection
from kompakt_operator.config import OperatorConfig
from kompakt_operator.watch_health import Owed, WatchHealth, proven
from kompakt_operator.watching import SILENCES

PATIENCE = 180.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch_health(clock: Clock) -> WatchHealth:
    return WatchHealth(clock)


def pod(name: str, version: int) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"namespace": "ml", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


def overdue(watch_health: WatchHealth) -> list[str]:
    return [owed.name for owed in watch_health.overdue(PATIENCE)]


def test_what_was_answered_and_is_not_shown_is_overdue_in_time(watch_health: WatchHealth, clock: Clock) -> None:
    watch_health.answered(pod("a", 7))
    clock.now = PATIENCE
    assert overdue(watch_health) == []
    clock.now += 1
    assert overdue(watch_health) == ["a"]


def test_anything_as_new_that_the_watch_shows_clears_it(watch_health: WatchHealth, clock: Clock) -> None:
    watch_health.answered(pod("a", 7))
    clock.now = PATIENCE + 1
    watch_health.watched("Pod", pod("b", 6))
    assert overdue(watch_health) == ["a"]
    watch_health.watched("Service", pod("c", 9))
    assert overdue(watch_health) == ["a"]
    watch_health.watched("Pod", pod("b", 7))
    assert overdue(watch_health) == []


def test_what_the_watch_has_shown_before_is_not_owed(watch_health: WatchHealth, clock: Clock) -> None:
    watch_health.watched("Pod", pod("a", 7))
    for version in (5, 7):
        watch_health.answered(pod("a", version))
    clock.now = PATIENCE + 1
    assert overdue(watch_health) == []


def test_of_a_list_each_object_counts_though_it_names_no_kind(watch_health: WatchHealth, clock: Clock) -> None:
    items = [{"metadata": pod(name, version)["metadata"]} for name, version in (("old", 3), ("new", 8))]
    watch_health.watched("Pod", pod("x", 5))
    watch_health.answered({"kind": "PodList", "metadata": {"resourceVersion": "99"}, "items": items})
    clock.now = PATIENCE + 1
    assert overdue(watch_health) == ["new"]


@pytest.mark.parametrize(
    "body", [{}, {"kind": "Status"}, {"kind": "Lease", "metadata": {"resourceVersion": "9"}}, {"kind": "PodList"}]
)
def test_other_answers_say_nothing(watch_health: WatchHealth, clock: Clock, body: dict[str, Any]) -> None:
    watch_health.answered(body)
    clock.now = PATIENCE + 1
    assert overdue(watch_health) == []


class Answers:
    """An API server with one answer."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer

    async def get(self, path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/ml/pods/a"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "stuck", "still_owed"),
    [
        (pod("a", 9), True, True),
        (Unreachable("no answer"), False, True),
        (rejection(404, "NotFound", "gone"), False, False),
        ({**pod("a", 9), "metadata": {"uid": "of a successor"}}, False, False),
    ],
)
async def test_only_an_object_that_is_there_still_proves_it(
    watch_health: WatchHealth, clock: Clock, answer: dict[str, Any] | Exception, stuck: bool, still_owed: bool
) -> None:
    watch_health.answered(pod("a", 7))
    clock.now = PATIENCE + 1
    (owed,) = watch_health.overdue(PATIENCE)
    assert await proven(Answers(answer), watch_health, owed) is stuck  # type: ignore[arg-type]
    assert watch_health.owes(owed) is still_owed


async def test_a_watch_that_shows_it_while_it_is_asked_for_is_not_stuck(watch_health: WatchHealth, clock: Clock) -> None:
    class Late(Answers):
        async def get(self, path: str) -> dict[str, Any]:
            watch_health.watched("Pod", pod("a", 7))
            return pod("a", 7)

    watch_health.answered(pod("a", 7))
    clock.now = PATIENCE + 1
    (owed,) = watch_health.overdue(PATIENCE)
    assert not await proven(Late({}), watch_health, owed)  # type: ignore[arg-type]


def test_paths_lead_to_the_object() -> None:
    paths = {kind: Owed(kind, "ml", "a", "", 1, 0).path for kind in ("TrainingJob", "Pod", "Service")}
    assert paths == {
        "TrainingJob": "/apis/kompakt.dev/v1alpha1/namespaces/ml/trainingjobs/a",
        "Pod": "/api/v1/namespaces/ml/pods/a",
        "Service": "/api/v1/namespaces/ml/services/a",
    }


def test_a_silent_connection_outlasts_bookmarks_and_is_given_up_twice_before_the_watch_counts_as_stuck() -> None:
    patience = OperatorConfig("image", "ns", "me").watch_patience
    assert patience / SILENCES > 60
    assert patience > 2 * (patience / SILENCES) + 15  # and what an answer may take
