"""batchSize Raise: the first attempt measures, the later ones have what was found, until the spec changes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.job.batches import Batch, BatchState, current, fingerprint, measured, read_batch
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.spec import parse_job

RAISE = {"batchSize": "Raise", "baseBatchSize": 64}
ROLE = {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "digits"}]}}}
TWO_WORKERS = parse_job({"metadata": {"name": "j"}, "spec": {"roles": [ROLE | {"gpusPerReplica": 1}]}})


def line(suggested: int, seen: int = 16, **more: Any) -> tuple[str, ...]:
    """What a worker leaves behind that ended because it had measured."""
    return (json.dumps({"kompakt": 1, "batchMeasured": True, "batch": seen, "suggestedBatch": suggested, **more}),)


def ended(world: Any, *suggestions: int | None, seen: int = 16) -> Any:
    """Workers end after they have measured; None: without a word."""
    world.run()
    for index, suggested in enumerate(suggestions):
        world.change_one(index, phase="Succeeded", reports=() if suggested is None else line(suggested, seen))
    return world.settle()


@pytest.fixture
def raising(world_of: Any) -> Callable[..., Any]:
    return lambda **more: world_of(activationCompression=RAISE | more)


def shown(world: Any) -> tuple[int, str, int]:
    """Attempt, state and size."""
    return world.status.attempt, world.stored["batch"]["state"], world.stored["batch"]["size"]


def test_a_job_that_raises_nothing_has_no_batch_and_one_that_does_begins_with_its_base(world: Any, raising: Any) -> None:
    assert "batch" not in world.stored
    assert world.run().succeed(reports=line(40)).status.phase == "Succeeded", "nobody listens to what its pods measured"
    assert shown(raising()) == (1, "Measuring", 64)
    assert raising().job.compression.failure_policy == "Fail", "a raised batch never trains plainly"


def test_when_all_workers_have_measured_the_next_attempt_has_what_fits_the_tightest(raising: Any) -> None:
    world = ended(raising(), 40, 19)
    assert shown(world) == (2, "Raised", 76), "64 samples of the job grow as the 16 of a rank grow to 19"
    assert world.status.restarts == 0
    assert world.stored["lastRestart"]["reason"] == "BatchMeasured"
    assert "one of 76 fits" in world.stored["lastRestart"]["message"]
    assert {pod.attempt for pod in world.pods.values()} == {2}
    assert shown(world.run().fail(0, phase="Failed", disrupted="Eviction")) == (3, "Raised", 76), "it outlives restarts"
    assert (world.run().succeed().status.phase, *shown(world)) == ("Succeeded", 3, "Raised", 76)


def test_a_batch_that_grows_much_is_measured_again(raising: Any) -> None:
    world = ended(raising(), 80, 80)
    assert shown(world) == (2, "Measuring", 320), "five times as many: what does not grow counts much"
    assert "the next attempt measures with that" in world.stored["lastRestart"]["message"]
    assert shown(ended(world, 96, 96, seen=80)) == (3, "Raised", 384)


def test_measuring_ends_after_five_attempts(raising: Any) -> None:
    world = raising()
    for attempt in range(5):
        assert shown(world)[:2] == (attempt + 1, "Measuring")
        ended(world, 32, 32)
    assert shown(world) == (6, "Raised", 64 * 2**5)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        pytest.param({"phase": "Failed"}, (3, "Kept", 64), id="the base was seen to fit"),
        pytest.param({"phase": "Failed", "disrupted": "Eviction"}, (3, "Measuring", 320), id="the batch is not to blame"),
    ],
)
def test_a_batch_that_fails_while_it_is_tried_is_given_up(raising: Any, failure: dict[str, Any], expected: Any) -> None:
    assert shown(ended(raising(), 80, 80).run().fail(1, **failure)) == expected


@pytest.mark.parametrize("policy", [{}, {"operator": "Any"}])
def test_one_worker_that_has_measured_is_no_success(world_of: Any, policy: dict[str, str]) -> None:
    world = world_of(activationCompression=RAISE, runPolicy={"successPolicy": policy})
    assert ended(world, 40).status.phase == "Running"
    assert ended(world, 40, 40).status.attempt == 2


@pytest.mark.parametrize(
    ("suggested", "most", "state", "size"),
    [
        (40, 100, "Raised", 100),
        (80, 320, "Raised", 320),  # larger it will not be
        (40, 64, "Kept", 64),
        (12, None, "Kept", 64),
        (0, None, "Kept", 64),
        (1 << 49, None, "Raised", (1 << 31) - 1),
        (None, None, "Kept", 64),  # a worker's data ended before it had measured
    ],
)
def test_the_batch_stays_between_base_and_maximum(
    raising: Any, suggested: int | None, most: int | None, state: str, size: int
) -> None:
    world = raising(**({"maxBatchSize": most} if most else {}))
    assert shown(ended(world, 40 if suggested is None else suggested, suggested)) == (2, state, size)


def test_a_training_that_ends_or_fails_before_it_has_measured(raising: Any) -> None:
    world = raising().run().succeed()
    assert (world.status.phase, *shown(world)) == ("Succeeded", 1, "Measuring", 64)
    world = raising().run().change_one(0, phase="Succeeded", reports=line(40)).fail(1, phase="Failed")
    assert (world.status.restarts, *shown(world)) == (1, 2, "Measuring", 64)


def test_workers_without_gpus_need_not_end(world_of: Any) -> None:
    roles = [{"name": "worker", "gpusPerReplica": 1}, {"name": "server", "gpusPerReplica": 0}]
    assert shown(ended(world_of(roles=roles, activationCompression=RAISE), 20)) == (2, "Raised", 80)


def test_a_changed_spec_is_measured_anew_and_an_unchanged_one_is_not(raising: Any, job_of: Any) -> None:
    world = ended(raising(), 20, 20)
    for changed, expected in ((RAISE, ("Raised", 80)), (RAISE | {"targetGradientError": "0.02"}, ("Measuring", 64))):
        world.job = job_of(activationCompression=changed)
        assert shown(world.suspend().suspend(False))[1:] == expected
    world.job = job_of(activationCompression={"batchSize": "Keep"})
    assert "batch" not in world.suspend().suspend(False).stored


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
    batch = Batch(BatchState.MEASURING, min(base, (1 << 31) - 1), min(base, (1 << 31) - 1), "")
    pods = [WorkerPod(f"j-worker-{i}-a1", "u", 1, "worker", i, "Succeeded", reports=line(suggested, seen)) for i in range(2)]
    found = measured(TWO_WORKERS, batch, pods)
    assert found is not None
    assert batch.base <= found.size <= (1 << 31) - 1


def test_what_a_batch_was_measured_with_reads_the_same_after_an_upgrade_of_the_operator() -> None:
    compression = {"batchSize": "Raise", "baseBatchSize": 8, "overrides": [{"modules": "head.*"}]}
    found = parse_job(
        {"metadata": {"name": "digits"}, "spec": {"roles": [ROLE | {"gpusPerReplica": 2}], "activationCompression": compression}}
    )
    assert fingerprint(found) == "dd82bc891370409d"
