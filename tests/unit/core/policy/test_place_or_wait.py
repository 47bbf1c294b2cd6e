"""What a gang waits for on a cluster of real, unequal machines."""

from typing import Any

import pytest

from kompakt_core.ids import JobUid, NodeName, PodUid, mask_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.model import (
    Gang,
    GpuRequest,
    Level,
    NodeState,
    PlacementPolicy,
    Plan,
    Reason,
    Rejection,
    Snapshot,
    Worker,
)
from kompakt_core.policy.delay import FIRST_GUESS_S, dally, kompakt, never_relax
from kompakt_core.policy.model import Timers
from kompakt_core.policy.place_or_wait import NO_DELAY, DelayConfig, GangReservation, LevelWait, levels_for, place_or_wait
from kompakt_core.topology.describe import read_description

MACHINE, RACK, BLOCK, CLUSTER = Level
FIXED = DelayConfig(dally, Timers(600, 1800, 3600))
RACK_LABEL, BLOCK_LABEL = "kompakt.dev/rack", "kompakt.dev/block"


def node(name: str, rack: str = "", block: str = "", taken: int = 0, machine: str = "dgx1-v100", **more: Any) -> NodeState:
    """A machine of which the first GPUs are taken."""
    labels = {key: value for key, value in ((RACK_LABEL, rack), (BLOCK_LABEL, block)) if value}
    return NodeState(NodeName(name), read_description(machine, name), mask_of(list(range(taken))), labels, **more)


def cluster(*nodes: NodeState) -> Snapshot:
    return Snapshot({state.name: state for state in nodes})


def gang(workers: int, gpus: int, **more: Any) -> Gang:
    members = tuple(Worker(index, f"w-{index}", PodUid(f"uid-{index}"), gpus, **more) for index in range(workers))
    return Gang(JobUid("job"), 1, members, GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE, sensitive=True))


def test_a_gang_waits_for_one_machine_until_its_timer_and_takes_the_rack_then() -> None:
    two = cluster(node("a", "r", taken=4), node("b", "r", taken=4))
    assert place_or_wait(two, gang(2, 4), FIXED, 100, 699.9) == LevelWait(RACK, MACHINE, 700)
    plan = place_or_wait(two, gang(2, 4), FIXED, 100, 700)
    assert isinstance(plan, Plan)
    assert plan.level is RACK


def test_a_machine_is_taken_at_once() -> None:
    plan = place_or_wait(cluster(node("a", "r", taken=4), node("b", "r")), gang(2, 4), FIXED, 100, 100)
    assert isinstance(plan, Plan)
    assert plan.level is MACHINE


@pytest.mark.parametrize(
    ("workers", "gpus", "waits"),
    [(2, 8, False), (5, 3, True), (4, 3, False)],
    ids=["larger than a machine", "five of three fit no rack of two machines", "four of three do"],
)
def test_the_ideal_level_follows_from_workers_and_machines_not_from_a_sum(workers: int, gpus: int, waits: bool) -> None:
    """Two racks of two machines each; the gang's places are looked at with nothing running."""
    nodes = cluster(*(node(f"{rack}{index}", rack) for rack in "ab" for index in range(2)))
    levels = levels_for(nodes, gang(workers, gpus), CLUSTER)
    assert levels.ideal(workers * gpus) is (CLUSTER if waits else RACK)


def test_who_can_only_be_spread_waits_for_nothing() -> None:
    """15 GPUs are fewer than a rack has, but no rack holds five workers of three: there is nothing to wait for."""
    nodes = cluster(*(node(f"{rack}{index}", rack) for rack in "ab" for index in range(2)))
    assert isinstance(place_or_wait(nodes, gang(5, 3), DelayConfig(never_relax), 0, 0), Plan)


def test_only_healthy_machines_count() -> None:
    """The one large machine is not ready: a gang of twelve does not wait for it."""
    large = node("large", machine="dgx2-16xv100", ready=False)
    nodes = cluster(node("a", "r"), node("b", "r"), large)
    assert isinstance(place_or_wait(nodes, gang(3, 4), FIXED, 0, 0), Plan)
    well = cluster(node("a", "r"), node("b", "r"), node("large", machine="dgx2-16xv100", taken=8))
    assert place_or_wait(well, gang(3, 4), FIXED, 0, 0) == LevelWait(RACK, MACHINE, 600)


def test_a_machine_that_lacks_processors_even_when_empty_is_not_waited_for() -> None:
    few = {"cpu_millis": 4000, "free_cpu_millis": 4000}
    nodes = cluster(node("a", "r", **few), node("b", "r", **few))
    assert isinstance(place_or_wait(nodes, gang(2, 2, cpu_millis=3000), FIXED, 0, 0), Plan)


def test_processors_that_others_use_now_are_waited_for() -> None:
    half = {"cpu_millis": 8000, "free_cpu_millis": 4000, "memory_bytes": 8, "free_memory_bytes": 4, "pods": 2, "free_pods": 1}
    nodes = cluster(node("a", "r", **half), node("b", "r", **half))
    assert place_or_wait(nodes, gang(2, 2, cpu_millis=3000, memory_bytes=3), FIXED, 0, 0) == LevelWait(RACK, MACHINE, 600)


@pytest.mark.parametrize("trouble", [{"ready": False}, {"unschedulable": True}, {"problem": Reason.STALE_TOPOLOGY}], ids=str)
def test_a_rack_in_trouble_is_not_waited_for(trouble: dict[str, Any]) -> None:
    """Rack r could hold the gang if both its machines worked; racks s and t have one machine each."""
    nodes = cluster(node("a", "r"), node("b", "r", **trouble), node("c", "s"), node("d", "t"))
    assert isinstance(place_or_wait(nodes, gang(2, 8), FIXED, 0, 0), Plan)
    well = cluster(node("a", "r"), node("b", "r", taken=1), node("c", "s"), node("d", "t"))
    assert place_or_wait(well, gang(2, 8), FIXED, 0, 0) == LevelWait(CLUSTER, RACK, 1800)


def test_nodes_without_labels_are_in_no_rack() -> None:
    nodes = cluster(node("a", "r", taken=6), node("b", "r", taken=6), node("c", taken=4), node("d", taken=4))
    answer = place_or_wait(nodes, gang(2, 4), FIXED, 0, 0)
    assert answer == LevelWait(CLUSTER, RACK, 1800)


def test_a_cluster_without_labels_has_machines_and_itself() -> None:
    nodes = cluster(node("a", taken=4), node("b", taken=4))
    assert place_or_wait(nodes, gang(2, 4), FIXED, 0, 0) == LevelWait(CLUSTER, MACHINE, 600)
    assert [level for level, _ in levels_for(nodes, gang(2, 4), CLUSTER).sizes] == [MACHINE, CLUSTER]


def test_blocks_lie_between_racks_and_the_cluster() -> None:
    nodes = cluster(*(node(f"{block}{rack}", f"{rack}", block, taken=4) for block in "xy" for rack in "ab"))
    assert place_or_wait(nodes, gang(2, 4), FIXED, 0, 0) == LevelWait(BLOCK, RACK, 1800)


def test_no_patience_is_todays_plan_and_never_waits_for_racks() -> None:
    nodes = cluster(node("a", "r", taken=4), node("b", "s", taken=4))
    plan = place_or_wait(nodes, gang(2, 4), NO_DELAY, 0, 0)
    assert isinstance(plan, Plan)
    assert plan.level is CLUSTER


def test_never_relax_waits_without_end() -> None:
    nodes = cluster(node("a", "r", taken=4), node("b", "r", taken=4))
    assert place_or_wait(nodes, gang(2, 4), DelayConfig(never_relax), 0, 1e9) == LevelWait(RACK, MACHINE, None)


def test_our_own_policy_waits_as_long_as_the_gain_of_a_first_guess() -> None:
    slow = DelayConfig(kompakt, slowdown={MACHINE: 0.025, RACK: 0.5, CLUSTER: 2.0})
    nodes = cluster(node("a", "r", taken=4), node("b", "r", taken=4))
    assert place_or_wait(nodes, gang(2, 4), slow, 0, 0) == LevelWait(RACK, MACHINE, pytest.approx(FIRST_GUESS_S * 0.475))


def test_a_single_gpu_waits_for_no_level() -> None:
    """Its helper without GPUs finds no room beside it; one GPU communicates with nobody."""
    nodes = cluster(node("a", "r", free_pods=1), node("b", "r", free_pods=1))
    alone = gang(1, 1)
    helped = Gang(alone.job_uid, 1, (*alone.workers, Worker(1, "cpu", PodUid("c"), 0)), alone.wish)
    assert isinstance(place_or_wait(nodes, helped, FIXED, 0, 0), Plan)


def test_what_fits_nowhere_is_refused_as_before() -> None:
    full = cluster(node("a", "r", taken=8), node("b", "r", taken=8))
    answer = place_or_wait(full, gang(2, 4), FIXED, 0, 0)
    assert isinstance(answer, Rejection)
    assert answer.reason is Reason.DOES_NOT_FIT_NOW


PASSED_OVER = DelayConfig(never_relax, overtaken_at_most=5)


def test_who_is_passed_over_too_often_is_kept_the_place_that_lacks_the_fewest() -> None:
    nodes = cluster(node("a", "r", taken=4), node("b", "r", taken=3), node("c", "s", taken=4), node("d", "s", taken=8))
    assert place_or_wait(nodes, gang(2, 4), PASSED_OVER, 0, 0, overtaken=4) == LevelWait(RACK, MACHINE, None)
    assert place_or_wait(nodes, gang(2, 4), PASSED_OVER, 0, 0, overtaken=5) == GangReservation(MACHINE, {"b": 8})
    full = cluster(node("a", "r", taken=7), node("b", "r", taken=6), node("c", "s", taken=8))
    assert place_or_wait(full, gang(2, 4), PASSED_OVER, 0, 0, overtaken=5) == GangReservation(MACHINE, {"b": 8})
    assert place_or_wait(full, gang(2, 8), PASSED_OVER, 0, 0, overtaken=5) == GangReservation(RACK, {"a": 8, "b": 8})


def test_a_timer_that_will_end_the_wait_needs_nothing_kept() -> None:
    nodes = cluster(node("a", "r", taken=4), node("b", "r", taken=4))
    patience = DelayConfig(dally, Timers(600, 1800, 3600), overtaken_at_most=5)
    assert place_or_wait(nodes, gang(2, 4), patience, 0, 0, overtaken=9) == LevelWait(RACK, MACHINE, 600)


def test_a_gang_that_could_never_fit_is_kept_nothing() -> None:
    nodes = cluster(node("a", "r"), node("b", "r"))
    answer = place_or_wait(nodes, gang(3, 8), PASSED_OVER, 0, 0, overtaken=9)
    assert isinstance(answer, Rejection)
    assert answer.reason is Reason.NEVER_FITS
