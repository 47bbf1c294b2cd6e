"""A job that is asked to end for another: whole, with time for a checkpoint, uncounted, once per request."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.preempt_request import PreemptRequest, encode, readable
from kompakt_core.job import actions as do


def ask(world: Any, attempt: int | None = None) -> None:
    """The planner writes its request, for the current attempt unless told otherwise."""
    own = world.status.attempt if attempt is None else attempt
    request = PreemptRequest(own, "2026-01-31T12:00:00Z", "ml", "urgent", "uid-urgent", 1000, -5)
    world.stored["scheduling"] = {"attempt": own, "state": "Released", "preempt": encode(request)}


def deletions(actions: list[do.Action]) -> list[do.DeletePod]:
    return [action for action in actions if isinstance(action, do.DeletePod)]


def test_the_whole_gang_ends_with_its_grace_period_and_starts_again_gated(world_of: Any) -> None:
    world = world_of(runPolicy={"preemption": {"gracePeriodSeconds": 120}}).running().settle()
    ask(world)
    assert [(one.name, one.grace) for one in deletions(world.look())] == [("j-worker-0-a1", 120), ("j-worker-1-a1", 120)]
    world.settle()
    assert sorted(world.pods) == ["j-worker-0-a2", "j-worker-1-a2"]
    assert all(pod.gated for pod in world.pods.values())
    assert (world.stored["attempt"], world.stored["restarts"], world.stored["disruptions"]) == (2, 0, 1)
    last = world.stored["lastRestart"]
    assert (last["reason"], last["message"]) == ("Preempted", "for ml/urgent, priority 1000; this job has priority -5")
    assert last["delaySeconds"] == 0
    assert world.condition("Running") == ("False", "Preempted")


def test_the_number_of_the_next_attempt_is_written_before_a_pod_is_deleted(world: Any) -> None:
    world.running().settle()
    ask(world)
    kinds = [type(action).__name__ for action in world.look()]
    assert kinds.index("WriteStatus") < kinds.index("DeletePod")


def test_an_operator_that_crashed_in_between_still_gives_the_grace(world: Any) -> None:
    """The status is written, no pod is deleted yet: what is left to do follows from the status."""
    world.running().settle()
    ask(world)
    world.perform(next(action for action in world.look() if isinstance(action, do.WriteStatus)))
    assert [one.grace for one in deletions(world.look())] == [60, 60]


def test_a_request_for_an_earlier_attempt_ends_nothing(world: Any) -> None:
    world.running().settle()
    ask(world)
    world.settle()
    ask(world, attempt=1)
    world.running().settle()
    assert world.stored["attempt"] == 2
    ask(world, attempt=2)
    world.settle()
    assert world.stored["attempt"] == 3


def test_pods_deleted_for_any_other_reason_keep_their_own_grace(world: Any) -> None:
    world.running().settle().change_one(0, deleting=True)
    assert {one.grace for one in deletions(world.look())} == {None}


def test_a_preemption_uses_up_no_backoff_limit(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 0})
    for attempt in (1, 2, 3):
        world.running().settle()
        ask(world)
        world.settle()
        assert (world.stored["attempt"], world.stored["phase"], world.stored["restarts"]) == (attempt + 1, "Pending", 0)


def test_a_job_that_has_just_succeeded_is_not_ended(world: Any) -> None:
    world.running().settle()
    ask(world)
    world.change(phase="Succeeded").settle()
    assert (world.stored["phase"], world.stored["attempt"]) == ("Succeeded", 1)


@pytest.mark.parametrize(
    "change",
    [{"attempt": "1"}, {"attempt": True}, {"for": None}, {"for": {"name": "x"}}, {"requestedAt": "soon"}, {"priority": None}],
    ids=str,
)
def test_what_the_planner_never_writes_is_no_request(change: dict[str, Any]) -> None:
    right = encode(PreemptRequest(1, "2026-01-31T12:00:00Z", "ml", "urgent", "uid-urgent", 1000, 0))
    assert readable(right) is not None
    assert readable({**right, **change}) is None


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


@given(
    st.builds(
        PreemptRequest, st.integers(), st.just("2026-01-31T12:00:00Z"), *[st.text(min_size=1)] * 3, st.integers(), st.integers()
    )
)
def test_a_request_reads_as_it_was_written(request: PreemptRequest) -> None:
    assert readable(encode(request)) == request
