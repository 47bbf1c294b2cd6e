"""A job that is asked to end for another: whole, with time for a checkpoint, uncounted, once per request."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.preempt_request import PreemptRequest, encode, readable
from kompakt_core.job import to_do as do

MOMENT = "2026-01-31T12:00:00Z"
RIGHT = PreemptRequest(1, MOMENT, "ml", "urgent", "uid-urgent", 1000, -5)
FOR = encode(RIGHT)["for"]
STRANGER = replace(RIGHT, namespace="", name="")


def asked(world: Any, attempt: int | None = None) -> Any:
    """The gang runs; the planner writes its request, for the current attempt unless told otherwise."""
    own = world.run().status.attempt if attempt is None else attempt
    world.stored["scheduling"] = {"attempt": own, "state": "Released", "preempt": encode(replace(RIGHT, attempt=own))}
    return world


def graces(actions: list[do.Action]) -> list[tuple[str, int | None]]:
    return [(action.name, action.grace) for action in actions if isinstance(action, do.DeletePod)]


def test_the_whole_gang_ends_with_its_grace_period_and_starts_again_gated(world_of: Any) -> None:
    world = asked(world_of(runPolicy={"preemption": {"gracePeriodSeconds": 120}}))
    assert graces(world.look()) == [("j-worker-0-a1", 120), ("j-worker-1-a1", 120)]
    world.settle()
    assert sorted(world.pods) == ["j-worker-0-a2", "j-worker-1-a2"]
    assert all(pod.gated for pod in world.pods.values())
    assert world.shows("attempt", "restarts", "disruptions") == (2, 0, 1)
    last = world.stored["lastRestart"]
    assert (last["reason"], last["message"]) == ("Preempted", "for ml/urgent, priority 1000; this job has priority -5")
    assert last["delaySeconds"] == 0
    assert world.condition("Running") == ("False", "Preempted")


def test_for_a_job_of_another_namespace_it_ends_without_its_name() -> None:
    assert readable(encode(STRANGER)) == STRANGER
    assert encode(STRANGER)["for"] == {"uid": "uid-urgent", "priority": 1000}
    assert STRANGER.message == "for a job of another namespace (uid uid-urgent), priority 1000; this job has priority -5"


def test_the_next_attempt_is_written_before_a_pod_is_deleted_so_a_crash_in_between_costs_no_grace(world: Any) -> None:
    actions = asked(world).look()
    write = next(action for action in actions if isinstance(action, do.WriteStatus))
    assert actions.index(write) < [isinstance(action, do.DeletePod) for action in actions].index(True)
    world.perform(write)
    assert [grace for _, grace in graces(world.look())] == [60, 60]


def test_a_request_for_an_earlier_attempt_ends_nothing(world: Any) -> None:
    asked(asked(world).settle(), attempt=1)
    assert world.run().stored["attempt"] == 2
    assert asked(world).settle().stored["attempt"] == 3


def test_pods_deleted_for_any_other_reason_keep_their_own_grace(world: Any) -> None:
    assert {grace for _, grace in graces(world.run().change_one(0, deleting=True).look())} == {None}


def test_a_preemption_uses_up_no_backoff_limit(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 0})
    for attempt in (2, 3, 4):
        assert asked(world).settle().shows("attempt", "phase", "restarts") == (attempt, "Pending", 0)


def test_a_job_that_has_just_succeeded_is_not_ended(world: Any) -> None:
    assert asked(world).succeed().shows("phase", "attempt") == ("Succeeded", 1)


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": "1"},
        {"attempt": True},
        {"for": None},
        {"for": {"name": "x"}},
        {"for": {**FOR, "name": ""}},
        {"for": {**FOR, "uid": ""}},
        {"requestedAt": "soon"},
        {"priority": None},
    ],
    ids=str,
)
def test_what_the_planner_never_writes_is_no_request(change: dict[str, Any]) -> None:
    assert readable(encode(RIGHT)) == RIGHT
    assert readable({**encode(RIGHT), **change}) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(
            st.sampled_from(("attempt", "requestedAt", "for", "namespace", "name", "uid", "priority")) | st.text(), inner
        ),
        max_leaves=12,
    )
)
def test_anything_else_is_read_without_an_error(value: Any) -> None:
    assert readable(value) is None or isinstance(readable(value), PreemptRequest)


@given(st.builds(PreemptRequest, st.integers(), st.just(MOMENT), *[st.text(min_size=1)] * 3, st.integers(), st.integers()))
def test_a_request_reads_as_it_was_written(request: PreemptRequest) -> None:
    assert readable(encode(request)) == request
