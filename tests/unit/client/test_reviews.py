"""Who may ask: what the API server is asked, how long its word counts, and that no word means no."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kompakt_client.requests import ApiRequest
from kompakt_client.reviews import (
    AT_ONCE,
    KEPT_SECONDS,
    LONGEST_TOKEN,
    MOST_KEPT,
    READ_METRICS,
    AccessRefused,
    Reviews,
    explaining,
    token_of,
)
from kompakt_core import contract
from tests.support.client.reviewing import Reviewing

TOKEN = "token-of-admin"
IN_ML = explaining(contract.JOB_PLURAL, "ml")


class Moved:
    def __init__(self) -> None:
        self.now = 0.0
        self.api = Reviewing()
        self.reviews = Reviews(self.api, lambda: self.now)


@pytest.fixture
def world() -> Moved:
    return Moved()


def refusal(work: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(AccessRefused) as found:
        work()
    return found.value.status, str(found.value)


def test_the_api_server_is_asked_for_our_audience_and_with_all_that_it_said_of_the_caller(world: Moved) -> None:
    caller = world.reviews.admit(TOKEN, IN_ML)
    assert (caller.name, caller.groups) == ("admin", ("system:authenticated",))
    token, access = world.api.bodies
    assert token["spec"] == {"token": TOKEN, "audiences": ["kompakt.dev"]}
    assert access["spec"] == {
        "user": "admin",
        "uid": "uid-admin",
        "groups": ("system:authenticated",),
        "extra": {"k": ("v",)},
        "resourceAttributes": {
            "namespace": "ml",
            "verb": "get",
            "group": "kompakt.dev",
            "resource": "trainingjobs",
            "subresource": "explain",
        },
    }


def test_metrics_are_a_path_as_for_every_other_part_of_kubernetes(world: Moved) -> None:
    world.reviews.admit(TOKEN, READ_METRICS)
    assert world.api.bodies[-1]["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.api.users.clear(),
        lambda world: setattr(world.api, "audiences", ()),
        lambda world: setattr(world.api, "audiences", ("https://kubernetes.default.svc",)),
        lambda world: world.api.users.update({TOKEN: ""}),
    ],
    ids=["unknown", "an API server without audiences", "a token for the API server", "nobody's"],
)
def test_a_token_that_is_not_vouched_for_is_nobodys(world: Moved, change: Callable[[Moved], object]) -> None:
    change(world)
    assert refusal(lambda: world.reviews.admit(TOKEN, READ_METRICS))[0] == 401


@pytest.mark.parametrize("token", ["", "x" * (LONGEST_TOKEN + 1), "\udcff"])
def test_what_can_be_no_token_is_not_even_asked_about(world: Moved, token: str) -> None:
    status, sentence = refusal(lambda: world.reviews.caller(token))
    assert (status, world.api.asked.total()) == (401, 0)
    assert "Kompakt-Token" in sentence


def test_who_is_known_may_still_not_everything(world: Moved) -> None:
    world.api.rights["admin"] = {IN_ML}
    world.reviews.admit(TOKEN, IN_ML)
    status, sentence = refusal(lambda: world.reviews.admit(TOKEN, explaining(contract.JOB_PLURAL, "other")))
    assert (status, sentence) == (403, "admin may not get trainingjobs/explain.kompakt.dev in namespace other")
    assert refusal(lambda: world.reviews.admit(TOKEN, READ_METRICS)) == (403, "admin may not get /metrics")


@pytest.mark.parametrize("answer", [{}, {"status": None}, {"status": {"authenticated": "yes"}}, {"status": []}])
def test_an_answer_that_says_nothing_lets_nobody_in(world: Moved, answer: dict[str, Any]) -> None:
    world.api.json = lambda request: answer  # type: ignore[method-assign]
    assert refusal(lambda: world.reviews.admit(TOKEN, READ_METRICS))[0] == 401


def test_an_api_server_that_denies_and_allows_denies(world: Moved) -> None:
    caller = world.reviews.caller(TOKEN)
    world.api.json = lambda request: {"status": {"allowed": True, "denied": True}}  # type: ignore[method-assign]
    assert not world.reviews.may(caller, IN_ML)


def test_no_answer_means_no_and_says_nothing_of_addresses(world: Moved) -> None:
    world.api.down = True
    status, sentence = refusal(lambda: world.reviews.admit(TOKEN, READ_METRICS))
    assert status == 503
    assert "10.0.0.1" not in sentence


def test_the_word_of_the_api_server_counts_for_seconds(world: Moved) -> None:
    for _ in range(3):
        world.reviews.admit(TOKEN, READ_METRICS)
    assert world.api.asked == {"TokenReview": 1, "SubjectAccessReview": 1}
    world.api.users.clear()
    world.now = KEPT_SECONDS - 0.1
    world.reviews.admit(TOKEN, READ_METRICS)
    world.now = KEPT_SECONDS
    assert refusal(lambda: world.reviews.admit(TOKEN, READ_METRICS))[0] == 401


def test_a_right_that_is_taken_away_is_gone_after_seconds(world: Moved) -> None:
    world.reviews.admit(TOKEN, READ_METRICS)
    world.api.rights.clear()
    world.now = KEPT_SECONDS
    assert refusal(lambda: world.reviews.admit(TOKEN, READ_METRICS))[0] == 403


def test_strangers_do_not_push_out_who_is_known(world: Moved) -> None:
    world.reviews.admit(TOKEN, READ_METRICS)
    for number in range(MOST_KEPT + 1):
        refusal(lambda token=f"forged-{number}": world.reviews.caller(token))  # type: ignore[misc]
    before = world.api.asked.total()
    world.reviews.admit(TOKEN, READ_METRICS)
    assert world.api.asked.total() == before


def test_what_is_kept_is_bounded(world: Moved) -> None:
    world.api.rights.clear()
    caller = world.reviews.caller(TOKEN)
    for number in range(2 * MOST_KEPT + 1):
        world.reviews.may(caller, explaining(contract.JOB_PLURAL, f"n{number}"))
        assert len(world.reviews._allowed._known) <= MOST_KEPT


def test_few_questions_reach_the_api_server_at_once(world: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kompakt_client.reviews.TURN_SECONDS", 0.01)
    asking, go_on = threading.Semaphore(0), threading.Event()

    def slow(request: ApiRequest) -> dict[str, Any]:
        asking.release()
        go_on.wait(10)
        return {}

    world.api.json = slow  # type: ignore[method-assign]
    threads = [threading.Thread(target=refusal, args=[lambda: world.reviews.caller("x")]) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert asking.acquire(timeout=10)
    assert refusal(lambda: world.reviews.caller("y"))[0] == 503
    go_on.set()
    for thread in threads:
        thread.join(10)
    world.api.json = lambda request: {"status": {}}  # type: ignore[method-assign]
    assert refusal(lambda: world.reviews.caller("y"))[0] == 401, "turns are given back"


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, ""),
        ({"Authorization": "Bearer a"}, "a"),
        ({"Authorization": "bearer  a "}, "a"),
        ({"Authorization": "Basic a"}, ""),
        ({"Kompakt-Token": "b"}, "b"),
        ({"Kompakt-Token": "b", "Authorization": "Bearer a"}, "b"),
    ],
)
def test_the_token_stands_in_one_of_two_headers(headers: dict[str, str], token: str) -> None:
    assert token_of(headers.get) == token
