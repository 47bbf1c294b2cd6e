"""A gang that no node could ever hold asks an autoscaler for nodes."""

from dataclasses import replace

import pytest

from kompakt_core.contract import timestamps
from kompakt_core.contract.conditions import Type
from kompakt_core.job import provisioning
from kompakt_core.job import to_do as do
from kompakt_core.job.provisioning import AGAIN_SECONDS, NodeRequest, Provisioning, RequestNodes, RequestState
from tests.support.core.job_world import FAILED, World, make_job

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PLACES = {"plan": {"level": "Machine"}}


@pytest.fixture
def world() -> World:
    return World(make_job(), planner_patience=30.0, provisioning=Provisioning(CLASS)).settle()


def never_fits(world: World) -> World:
    return world.planned("Waiting", reason="NeverFits")


def request_of(world: World) -> NodeRequest:
    assert world.provisioning is not None
    assert world.provisioning.request is not None
    return world.provisioning.request


def answered(world: World, state: RequestState, message: str = "", since: float | None = None) -> World:
    return world.requested(replace(request_of(world), state=state, message=message, since=since)).settle()


def requests(world: World) -> int:
    return sum(isinstance(action, RequestNodes) for action in world.history)


@pytest.mark.parametrize("reason", ["Waiting", "WaitingForLevel", "BeyondLimits", "InvalidRequest"])
def test_nobody_is_asked_for_a_gang_that_could_have_room_some_day(world: World, reason: str) -> None:
    world.now += 1e6
    world.planned("Waiting", reason=reason, waitingSince=timestamps.encode(0))
    assert world.provisioning == Provisioning(CLASS)


@pytest.fixture
def patient() -> World:
    """Nodes are asked for also where others use those that are there, after ten minutes."""
    return World(make_job(), planner_patience=30.0, provisioning=Provisioning(CLASS, after_s=600)).settle()


def no_room(world: World, since: float) -> World:
    return world.planned("Waiting", reason="Waiting", waitingSince=timestamps.encode(since))


def test_where_others_use_the_nodes_some_are_asked_for_after_a_while(patient: World) -> None:
    no_room(patient, patient.now)
    assert (requests(patient), do.Wake(patient.now + 600) in patient.look()) == (0, True)
    assert patient.condition(Type.RECONCILING) == ("True", "WorkersNotRunning")
    patient.now += 599
    assert requests(patient.settle()) == 0
    patient.now += 1
    assert (requests(patient.settle()), patient.condition(Type.RECONCILING)) == (1, ("True", "WaitingForNodes"))
    answered(patient, RequestState.FAILED, "no stock", since=patient.now)
    patient.now += AGAIN_SECONDS
    assert requests(patient.settle()) == 2


def test_who_fits_nowhere_or_waits_for_a_level_is_not_held_to_that(patient: World) -> None:
    patient.now += 1000
    patient.planned("Waiting", reason="WaitingForLevel", waitingSince=timestamps.encode(0))
    assert requests(patient) == 0
    assert requests(never_fits(patient)) == 1


def test_without_a_moment_nobody_knows_how_long_a_gang_waits(patient: World) -> None:
    assert requests(patient.planned("Waiting", reason="Waiting")) == 0


def test_a_gang_that_never_fits_asks_once_and_says_what_it_waits_for(world: World) -> None:
    never_fits(world)
    assert request_of(world) == NodeRequest("j-a1", CLASS)
    assert world.condition(Type.RECONCILING) == ("True", "WaitingForNodes")
    assert world.status.conditions[Type.RECONCILING].message == "ProvisioningRequest j-a1: not answered yet"
    answered(world, RequestState.PENDING, "no node group has so many GPUs")
    assert world.status.conditions[Type.RECONCILING].message == "ProvisioningRequest j-a1: no node group has so many GPUs"
    assert (requests(world), world.pods) == (1, {})


def test_without_a_class_nobody_is_asked() -> None:
    world = never_fits(World(make_job(), planner_patience=30.0).settle())
    assert (world.provisioning, world.condition(Type.RECONCILING)) == (None, ("True", "WorkersNotRunning"))


def test_pods_that_exist_already_could_not_name_a_request() -> None:
    world = never_fits(World(make_job(), provisioning=Provisioning(CLASS)).settle())
    assert (len(world.pods), world.provisioning) == (2, Provisioning(CLASS))


def test_a_request_of_an_earlier_attempt_says_nothing_of_this_one(world: World) -> None:
    world.requested(NodeRequest("j-a0", CLASS, RequestState.DELETED, "out of stock"))
    assert never_fits(world).condition(Type.RECONCILING) == ("True", "WorkersNotRunning")


def test_what_the_planner_says_of_another_attempt_counts_for_nothing(world: World) -> None:
    world.stored["scheduling"] = {"attempt": 7, "state": "Waiting", "reason": "NeverFits"}
    assert world.settle().provisioning == Provisioning(CLASS)


def test_pods_of_the_attempt_name_the_request_until_it_is_over(world: World) -> None:
    answered(never_fits(world), RequestState.PROVISIONED)
    assert provisioning.consumed("j", world.provisioning, 1) == request_of(world)
    assert provisioning.consumed("j", world.provisioning, 2) is None
    world.planned("Reserved", **PLACES).run()
    assert (request_of(world).name, world.condition(Type.RECONCILING)) == ("j-a1", ("False", "AllWorkersRan"))
    world.change_one(0, **FAILED).settle()
    assert (world.status.attempt, world.provisioning) == (2, Provisioning(CLASS))
    assert request_of(never_fits(world)).name == "j-a2"


def test_a_request_that_is_not_needed_any_more_is_taken_back_when_all_runs(world: World) -> None:
    """Nodes came from elsewhere. Before that it stays: they may be the first of those that were asked for."""
    never_fits(world).planned("Waiting", reason="Waiting")
    assert world.condition(Type.RECONCILING) == ("True", "WorkersNotRunning")
    world.planned("Reserved", **PLACES)
    assert request_of(world).state is RequestState.PENDING
    world.run()
    assert world.provisioning == Provisioning(CLASS)


def test_after_a_failure_it_is_made_anew_when_the_autoscaler_tries_again(world: World) -> None:
    answered(never_fits(world), RequestState.FAILED, "out of stock", since=world.now)
    said = world.status.conditions[Type.RECONCILING].message
    assert said == "ProvisioningRequest j-a1: out of stock; it is made anew at 1970-01-01T00:21:40Z"
    assert provisioning.consumed("j", world.provisioning, 1) is None
    world.now += AGAIN_SECONDS - 1
    assert requests(world.settle()) == 1
    assert do.Wake(world.now + 1) in world.look()
    world.now += 1
    assert (requests(world.settle()), request_of(world).state) == (2, RequestState.PENDING)


@pytest.mark.parametrize("since", [None, 5000.0])
def test_a_failure_of_which_nobody_knows_when_it_was_is_not_waited_out(world: World, since: float | None) -> None:
    never_fits(world).requested(replace(request_of(world), state=RequestState.FAILED, since=since))
    assert requests(world.settle()) == 2


def test_a_failed_request_of_a_gang_that_has_places_stays_as_it_is(world: World) -> None:
    answered(never_fits(world), RequestState.FAILED, since=world.now).planned("Reserved", **PLACES)
    world.now += AGAIN_SECONDS
    assert request_of(world.settle()).state is RequestState.FAILED


def test_one_of_another_class_is_made_anew(world: World) -> None:
    world.provisioning = replace(never_fits(world).provisioning or Provisioning(""), class_name="check-capacity")
    assert request_of(world.settle()).class_name == "check-capacity"


def test_a_request_that_somebody_keeps_from_being_gone_is_waited_for(world: World) -> None:
    answered(never_fits(world), RequestState.DELETED)
    assert requests(world) == 1
    world.job = make_job(suspend=True)
    assert request_of(world.settle()).state is RequestState.DELETED


def test_a_job_that_is_suspended_or_over_asks_for_nothing(world: World) -> None:
    never_fits(world).job = make_job(suspend=True)
    assert world.settle().provisioning == Provisioning(CLASS)
    world.job = make_job()
    answered(never_fits(world.settle()), RequestState.PROVISIONED).planned("Reserved", **PLACES).run().succeed()
    assert (world.status.phase, world.provisioning) == ("Succeeded", Provisioning(CLASS))
