"""What other answers of the API server say against a watch."""

from typing import Any

import pytest

from kompakt_client.errors import Unreachable, rejection
from kompakt_client.store import StoredObject
from kompakt_operator.api import OperatorApi
from kompakt_operator.config import OperatorConfig
from kompakt_operator.observed import SILENCES, WATCH_SECONDS, Observed
from kompakt_operator.projections import bare
from kompakt_operator.watch_health import Owed, WatchHealth, path_of, proven
from tests.support.operator.known import knowing, pod

PATIENCE = 180.0


def test_what_is_owed_is_overdue_in_time_and_something_else_begins_anew() -> None:
    now = [0.0]
    watch_health, first = WatchHealth(lambda: now[0]), {"Pod": bare(pod("a", resourceVersion="7"))}
    found = []
    for at, owed in [(0.0, first), (PATIENCE, first), (PATIENCE + 1, first), (PATIENCE + 2, {}), (PATIENCE + 3, first)]:
        now[0] = at
        found.append([(kind, one.name) for kind, one in watch_health.overdue(owed, PATIENCE)])
    assert found == [[], [], [("Pod", "a")], [], []]


class Answers(OperatorApi):
    """An API server with one answer."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer

    async def get(self, path: str, accept: str = "application/json", **query: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/ml/pods/a"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def owing() -> tuple[Observed, Owed]:
    observed = knowing(pod("a", "uid-a"))
    return observed, observed.owed()["Pod"]


@pytest.mark.parametrize(
    ("answer", "stuck", "still_owed"),
    [
        (pod("a", "uid-a"), True, True),
        (Unreachable("no answer"), False, True),
        (rejection(404, "NotFound", "gone"), False, False),
        (pod("a", "of a successor"), False, False),
    ],
    ids=["it is there", "no answer", "gone", "another one of that name"],
)
async def test_only_an_object_that_is_there_still_proves_it(
    answer: dict[str, Any] | Exception, stuck: bool, still_owed: bool
) -> None:
    observed, owed = owing()
    assert await proven(Answers(answer), observed, "Pod", owed) is stuck
    assert (observed.owed().get("Pod") == owed) is still_owed


async def test_a_watch_that_shows_it_while_it_is_asked_for_is_not_stuck() -> None:
    observed, owed = owing()

    class Late(Answers):
        async def get(self, path: str, accept: str = "application/json", **query: str) -> dict[str, Any]:
            observed._pods.store.shown(owed.version)
            return pod("a", "uid-a")

    assert not await proven(Late({}), observed, "Pod", owed)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("TrainingJob", "/apis/kompakt.dev/v1alpha1/namespaces/ml/trainingjobs/a"),
        ("Pod", "/api/v1/namespaces/ml/pods/a"),
        ("Service", "/api/v1/namespaces/ml/services/a"),
    ],
)
def test_paths_lead_to_the_object(kind: str, path: str) -> None:
    assert path_of(kind, StoredObject("ml", "a", "", 1)) == path


def test_a_silent_connection_outlasts_the_servers_end_and_is_given_up_twice_before_the_watch_counts_as_stuck() -> None:
    patience = OperatorConfig("image", "ns", "me").watch_patience
    assert patience / SILENCES > max(60, WATCH_SECONDS)  # kopf's own watch has bookmarks every 60 s
    assert patience > 2 * (patience / SILENCES) + 15  # and what an answer may take
