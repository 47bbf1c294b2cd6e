"""batchSize Raise: the first attempt measures, the later ones have what was found, until the spec changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.job.batches import Batch, BatchState, current, fingerprint, measured, read_batch
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.spec import parse_job

RAISE = {"batchSize": "Raise", "baseBatchSize": 64}


def line(suggested: int, seen: int = 16, **more: Any) -> tuple[str, ...]:
    """What a worker leaves behind that ended because it had measured."""
    return (json.dumps({"kompakt": 1, "batchMeasured": True, "batch": seen, "suggestedBatch": suggested, **more}),)


def ended(world: Any, *suggestions: int) -> Any:
    world.running().settle()
    for index, suggested in enumerate(suggestions):
        world.change_one(index, phase="Succeeded", reports=line(suggested))
    return world.settle()


def batch_of(world: Any) -> tuple[str, int]:
    return world.stored["batch"]["state"], world.stored["batch"]["size"]


def test_a_job_that_raises_nothing_has_no_batch_and_one_that_does_begins_with_its_base(world: Any, world_of: Any) -> None:
    assert "batch" not in world.stored
    raising = world_of(activationCompression=RAISE)
    assert batch_of(raising) == ("Measuring", 64)
    assert raising.job.compression.failure_policy == "Fail", "a raised batch never trains plainly"


def test_when_all_workers_have_measured_the_next_attempt_has_what_fits_the_tightest(world_of: Any) -> None:
    world = ended(world_of(activationCompression=RAISE), 40, 19)
    assert batch_of(world) == ("Raised", 76), "64 samples of the job grow as the 16 of a rank grow to 19"
    assert (world.status.attempt, world.status.restarts) == (2, 0)
    assert world.stored["lastRestart"]["reason"] == "BatchMeasured"
    assert "one of 76 fits" in world.stored["lastRestart"]["message"]
    assert {pod.attempt for pod in world.pods.values()} == {2}


def test_the_raised_batch_outlives_restarts_and_success_is_then_success(world_of: Any) -> None:
    world = ended(world_of(activationCompression=RAISE), 20, 20)
    world.running().settle().change_one(0, phase="Failed", disrupted="Eviction").settle()
    assert (world.status.attempt, *batch_of(world)) == (3, "Raised", 80)
    world.running().settle().change(phase="Succeeded").settle()
    assert world.status.phase == "Succeeded"
    assert batch_of(world) == ("Raised", 80)


def test_a_batch_that_grows_much_is_measured_again(world_of: Any) -> None:
    world = ended(world_of(activationCompression=RAISE), 80, 80)
    assert (world.status.attempt, *batch_of(world)) == (2, "Measuring", 320), "five times as many: what does not grow counts much"
    assert "the next attempt measures with that" in world.stored["lastRestart"]["message"]
    world.running().settle()
    for index in range(2):
        world.change_one(index, phase="Succeeded", reports=line(96, seen=80))
    assert (world.settle().status.attempt, *batch_of(world)) == (3, "Raised", 384)


def test_measuring_ends_at_the_maximum_and_after_five_attempts(world_of: Any) -> None:
    world = ended(world_of(activationCompression=RAISE | {"maxBatchSize": 320}), 80, 80)
    assert batch_of(world) == ("Raised", 320), "larger it will not be"
    world = world_of(activationCompression=RAISE)
    for attempt in range(5):
        assert (world.status.attempt, world.stored["batch"]["state"]) == (attempt + 1, "Measuring")
        ended(world, 32, 32)
    assert batch_of(world) == ("Raised", 64 * 2**5)


def test_a_batch_that_fails_while_it_is_tried_is_given_up(world_of: Any) -> None:
    world = ended(world_of(activationCompression=RAISE), 80, 80)
    world.running().settle().change_one(1, phase="Failed").settle()
    assert (world.status.attempt, *batch_of(world)) == (3, "Kept", 64), "the base was seen to fit"
    world = ended(world_of(activationCompression=RAISE), 80, 80)
    world.running().settle().change_one(1, phase="Failed", disrupted="Eviction").settle()
    assert (world.status.attempt, *batch_of(world)) == (3, "Measuring", 320), "the batch is not to blame"


@pytest.mark.parametrize("policy", [{}, {"operator": "Any"}])
def test_one_worker_that_has_measured_is_no_success(world_of: Any, policy: dict[str, str]) -> None:
    world = world_of(activationCompression=RAISE, runPolicy={"successPolicy": policy})
    assert ended(world, 40).status.phase == "Running"
    assert ended(world, 40, 40).status.attempt == 2


@pytest.mark.parametrize(
    ("suggested", "most", "state", "size"),
    [
        (40, 100, "Raised", 100),
        (40, 64, "Kept", 64),
        (12, None, "Kept", 64),
        (0, None, "Kept", 64),
        (1 << 49, None, "Raised", (1 << 31) - 1),
    ],
)
def test_the_batch_stays_between_base_and_maximum(world_of: Any, suggested: int, most: int | None, state: str, size: int) -> None:
    wish = RAISE | ({"maxBatchSize": most} if most else {})
    world = ended(world_of(activationCompression=wish), suggested, suggested)
    assert (world.status.attempt, *batch_of(world)) == (2, state, size)


def test_a_worker_without_a_suggestion_keeps_the_base_for_all(world_of: Any) -> None:
    world = world_of(activationCompression=RAISE).running().settle()
    world.change_one(0, phase="Succeeded", reports=line(40)).change_one(1, phase="Succeeded").settle()
    assert (world.status.attempt, *batch_of(world)) == (2, "Kept", 64), "its data ended before it had measured"


def test_a_training_that_ends_before_it_has_measured_is_done(world_of: Any) -> None:
    world = world_of(activationCompression=RAISE).running().settle().change(phase="Succeeded").settle()
    assert (world.status.phase, *batch_of(world)) == ("Succeeded", "Measuring", 64)


def test_a_failure_while_measuring_counts_and_the_next_attempt_measures_again(world_of: Any) -> None:
    world = world_of(activationCompression=RAISE).running().settle()
    world.change_one(0, phase="Succeeded", reports=line(40)).change_one(1, phase="Failed").settle()
    assert (world.status.attempt, world.status.restarts, *batch_of(world)) == (2, 1, "Measuring", 64)


def test_nobody_but_a_job_that_raises_listens_to_what_pods_say_of_measuring(world: Any) -> None:
    world.running().settle().change(phase="Succeeded", reports=line(40)).settle()
    assert world.status.phase == "Succeeded"


def test_workers_without_gpus_need_not_end(world_of: Any) -> None:
    roles = [{"name": "worker", "gpusPerReplica": 1}, {"name": "server", "gpusPerReplica": 0}]
    world = world_of(roles=roles, activationCompression=RAISE).running().settle()
    world.change_one(0, phase="Succeeded", reports=line(20)).settle()
    assert (world.status.attempt, *batch_of(world)) == (2, "Raised", 80)


def test_a_changed_spec_is_measured_anew_and_an_unchanged_one_is_not(world_of: Any, job_of: Any) -> None:
    world = ended(world_of(activationCompression=RAISE), 20, 20)
    for changed, expected in ((RAISE, ("Raised", 80)), (RAISE | {"targetGradientError": "0.02"}, ("Measuring", 64))):
        world.job = job_of(activationCompression=changed, suspend=True)
        world.settle()
        world.job = job_of(activationCompression=changed)
        assert batch_of(world.settle()) == expected
    world.job = job_of(activationCompression={"batchSize": "Keep"}, suspend=True)
    world.settle()
    world.job = job_of()
    assert "batch" not in world.settle().stored


@given(
    st.one_of(
        st.none(),
        st.integers(),
        st.dictionaries(st.sampled_from(["state", "size", "base", "spec", "rounds"]), st.text() | st.integers()),
    )
)
def test_any_status_is_read_or_passed_over(value: object) -> None:
    found = read_batch(value)
    assert found is None or found.size > 0


def test_what_is_written_is_read_again(job_of: Any) -> None:
    job = job_of(activationCompression=RAISE)
    batch = Batch(BatchState.RAISED, 92, 64, fingerprint(job), 2)
    assert read_batch(batch.written()) == batch == current(job, batch)


@given(st.integers(1, 1 << 31), st.integers(-5, 1 << 60), st.integers(-5, 1 << 60))
def test_whatever_workers_claim_the_batch_is_no_smaller_than_the_base(base: int, suggested: int, seen: int) -> None:
    roles = [{"name": "worker", "replicas": 2, "gpusPerReplica": 1, "template": {"spec": {"containers": [{"name": "t"}]}}}]
    job = parse_job({"metadata": {"name": "j", "namespace": "d"}, "spec": {"roles": roles}})
    batch = Batch(BatchState.MEASURING, min(base, (1 << 31) - 1), min(base, (1 << 31) - 1), "")
    pods = [WorkerPod(f"j-worker-{i}-a1", "u", 1, "worker", i, "Succeeded", reports=line(suggested, seen)) for i in range(2)]
    found = measured(job, batch, pods)
    assert found is not None
    assert batch.base <= found.size <= (1 << 31) - 1


def test_what_a_batch_was_measured_with_reads_the_same_after_an_upgrade_of_the_operator() -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "digits"}]}}
    roles = [{"name": "worker", "replicas": 2, "gpusPerReplica": 2, "template": template}]
    compression = {"batchSize": "Raise", "baseBatchSize": 8, "overrides": [{"modules": "head.*"}]}
    found = parse_job({"metadata": {"name": "digits"}, "spec": {"roles": roles, "activationCompression": compression}})
    assert fingerprint(found) == "dd82bc891370409d"
