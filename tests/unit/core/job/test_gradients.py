"""activationGradients: what the first attempt had stays in force, whatever an operator that came later takes for the default."""

from typing import Any

import pytest
from msgspec import structs

from kompakt_core.job import gradients
from kompakt_core.job.batches import fingerprint
from kompakt_core.job.gradients import read_gradients
from kompakt_core.job.model import ActivationGradients
from tests.support.core.job_world import World, make_job

BOUNDED, EXACT = ActivationGradients


@pytest.mark.parametrize(
    ("compression", "shown"),
    [
        ({}, "Bounded"),
        ({"activationGradients": "Exact"}, "Exact"),
        ({"nonlinearInputs": "Keep"}, "Exact"),
        ({"nonlinearInputs": "Bounded"}, "Bounded"),
        ({"activationGradients": "Exact", "nonlinearInputs": "Keep"}, "Exact"),
        ({"mode": "Lossless"}, None),
        ({"mode": "Lossless", "activationGradients": "Exact"}, None),
    ],
)
def test_the_status_shows_what_the_pods_are_told_before_they_exist(world_of: Any, compression: Any, shown: str | None) -> None:
    world = world_of(activationCompression=compression)
    assert world.history[0].status.get("activationGradients") == shown
    assert world.run().fail().shows("attempt", "activationGradients") == (2, shown)
    assert world.run().succeed().shows("phase", "activationGradients") == ("Succeeded", shown)


def test_a_job_without_compression_shows_nothing(world: World) -> None:
    assert "activationGradients" not in world.stored


def test_an_operator_with_another_default_changes_no_job_that_has_begun(world_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(activationCompression={}).run()
    monkeypatch.setattr(gradients, "DEFAULT", EXACT)
    assert world_of(activationCompression={}).shows("activationGradients") == ("Exact",), "a new job has the new one"
    assert world.fail().shows("attempt", "activationGradients") == (2, "Bounded")
    world.suspend()
    assert world.suspend(False).shows("attempt", "activationGradients") == (3, "Bounded")


def test_attempts_of_which_nothing_is_written_had_exact_gradients(world_of: Any) -> None:
    """An operator that knew nothing of it made them."""
    world = world_of(activationCompression={}).run()
    del world.stored["activationGradients"]
    assert world.settle().shows("attempt", "activationGradients") == (1, "Exact")
    assert world.fail().shows("attempt", "activationGradients") == (2, "Exact")


def test_what_the_spec_says_after_a_suspension_counts(world_of: Any) -> None:
    world = world_of(activationCompression={}).run().suspend()
    asked = structs.replace(world.job.compression, activation_gradients=EXACT)
    world.job = structs.replace(world.job, compression=asked)
    assert world.suspend(False).shows("attempt", "activationGradients") == (2, "Exact")


@pytest.mark.parametrize("value", [None, "", "Keep", 3, ["Exact"], {"Exact": 1}])
def test_a_malformed_status_says_nothing(value: object) -> None:
    assert read_gradients(value) is None


def test_what_a_batch_was_measured_with_is_the_same_for_an_operator_that_knows_more_fields() -> None:
    """Else every job would be measured again after an upgrade. The number is that of an operator without activationGradients."""
    open_, kept, said = (
        fingerprint(make_job(activationCompression=found))
        for found in ({}, {"nonlinearInputs": "Keep"}, {"activationGradients": "Exact"})
    )
    assert open_ == kept == "90049fa7ef30f484" != said
