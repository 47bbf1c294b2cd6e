"""The runtime of a job's first attempt goes on in later ones, whatever an operator that came later offers."""

from typing import Any

import pytest
from msgspec import structs

from kompakt_core.job.choices import Injection
from kompakt_core.job.runtime_image import read_image
from tests.support.core.job_world import World, make_job

OLD, NEW = "registry.example/kompakt-runtime:1", "registry.example/kompakt-runtime:2"


def world_with(image: str, **spec: Any) -> World:
    return World(make_job(**{"activationCompression": {}, **spec}), runtime=image).settle()


def test_the_status_shows_the_image_before_the_first_pod_exists() -> None:
    world = world_with(OLD)
    assert world.history[0].status["runtimeImage"] == OLD
    assert world.run().succeed().shows("phase", "runtimeImage") == ("Succeeded", OLD)


def test_an_upgraded_operator_goes_on_with_the_first_image_and_gives_new_jobs_the_new_one() -> None:
    world = world_with(OLD).run()
    world.runtime = NEW
    assert world.settle().shows("attempt", "runtimeImage") == (1, OLD)
    assert world.fail().shows("attempt", "runtimeImage") == (2, OLD)
    world.suspend()
    assert world.suspend(False).shows("attempt", "runtimeImage") == (3, OLD)
    assert world_with(NEW).shows("runtimeImage") == (NEW,)


def test_a_job_that_waits_suspended_takes_what_is_offered_when_it_begins() -> None:
    world = world_with(OLD, suspend=True)
    assert "runtimeImage" not in world.stored
    world.runtime = NEW
    assert world.suspend(False).shows("attempt", "runtimeImage") == (1, NEW)


def test_attempts_of_which_nothing_is_written_go_on_with_what_is_offered() -> None:
    """An operator that kept nothing made them; its image is not known any more."""
    world = world_with(OLD).run()
    del world.stored["runtimeImage"]
    world.runtime = NEW
    assert world.settle().shows("runtimeImage") == (NEW,)


def test_pods_without_the_runtime_have_no_image() -> None:
    plain: dict[str, Any] = {"activationCompression": {"mode": "None"}}
    for without in (plain, plain | {"injection": "Never"}):
        assert "runtimeImage" not in world_with(OLD, **without).stored
    begun = world_with(OLD, **plain, injection="Always").run()
    assert begun.shows("runtimeImage") == (OLD,)
    begun.suspend().job = structs.replace(begun.job, injection=Injection.NEVER)
    assert "runtimeImage" not in begun.suspend(False).stored


@pytest.mark.parametrize("value", [None, "", 3, ["i"], {"i": 1}])
def test_a_malformed_status_says_nothing(value: object) -> None:
    assert read_image(value) == ""
