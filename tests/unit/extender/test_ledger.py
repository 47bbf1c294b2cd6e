"""Which GPUs count as taken, from objects alone."""

from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName, mask_of
from kompakt_core.placement.model import NodeState, Reason
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.made_objects import job, node, pod, worker
from tests.support.extender.world import World

NODE = NodeName("n0")


@pytest.fixture
def leader() -> Leader:
    return on_nodes(1)


def state(leader: Leader) -> NodeState:
    leader.see()
    found = leader.ledger.state(NODE)
    assert found is not None
    return found


def gpus(*indices: int) -> str:
    return ",".join(f"GPU-n0-{i}" for i in indices)


def bound(world: World, count: int, written: str) -> None:
    world.add_pod(pod("p", count, annotations={c.ANN_GPUS: written} if written else {}, nodeName="n0"))


def planned(world: World, *indices: int, gated: bool = False) -> dict[str, Any]:
    """A worker, released unless gated, that carries a plan for these GPUs of n0."""
    made = worker("j", 0, len(indices))
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(*indices)}
    if not gated:
        made["spec"]["schedulingGates"] = []
    return world.add_pod(made)


def changed(world: World, change: Callable[[Any], object]) -> None:
    change(world.topologies["n0"])
    world.put("topologies", "n0", world.topologies["n0"])


def finished(world: World) -> None:
    bound(world, 2, gpus(3, 1))
    world.finish_pod("p")


def bound_elsewhere(world: World) -> None:
    made = planned(world, 0, 1)
    made["spec"]["nodeName"] = "elsewhere"
    world.add_pod(made)


def deleted_by_force(world: World) -> None:
    bound(world, 2, gpus(4, 5))
    world.report("n0")
    world.delete_pod("p")


def unhealthy(world: World) -> None:
    changed(world, lambda made: made["spec"]["gpus"][6].update(health="Unhealthy"))


def reported(world: World) -> None:
    bound(world, 1, "")
    changed(world, lambda made: made["status"].update(held=[{"uuid": "GPU-n0-7", "podUID": "uid-p"}]))


@pytest.mark.parametrize(
    ("happens", "taken"),
    [
        pytest.param([lambda world: bound(world, 2, gpus(3, 1))], (1, 3), id="written on a bound pod"),
        pytest.param(
            [lambda world: bound(world, 2, gpus(3, 1)), lambda world: world.finish_pod("p")], (), id="not of a finished one"
        ),
        pytest.param([lambda world: planned(world, 0, 1)], (0, 1), id="planned for a released pod"),
        pytest.param([bound_elsewhere], (), id="until it is bound elsewhere"),
        pytest.param([lambda world: planned(world, 0, 1, gated=True)], (), id="not by a plan on a gated pod"),
        pytest.param(
            [lambda world: world.add_pod(pod("p", 2, annotations={c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(0, 1)}))],
            (),
            id="nor by one on a plain pod",
        ),
        pytest.param([deleted_by_force], (4, 5), id="held by a pod that was deleted by force"),
        pytest.param([deleted_by_force, lambda world: world.report("n0")], (), id="until the plugin reports"),
        pytest.param([unhealthy], (6,), id="unhealthy"),
        pytest.param([reported], (7,), id="reported of a pod that was bound past us"),
    ],
)
def test_which_gpus_are_taken(happens: list[Callable[[World], Any]], taken: tuple[int, ...], leader: Leader) -> None:
    for one in happens:
        one(leader.world)
        leader.see()
    assert state(leader).taken == mask_of(taken)


def another_node_object(world: World) -> None:
    made = node("n0")
    made["metadata"]["uid"] = "another"
    world.put("nodes", "n0", made)


@pytest.mark.parametrize(
    ("happens", "problem"),
    [
        pytest.param(lambda world: bound(world, 1, ""), Reason.UNREPORTED_POD, id="a pod was bound past us"),
        pytest.param(lambda world: bound(world, 2, "GPU-n0-0"), Reason.UNREPORTED_POD, id="an annotation of too few GPUs"),
        pytest.param(lambda world: bound(world, 2, "GPU-n0-0,GPU-other-1"), Reason.UNREPORTED_POD, id="of GPUs elsewhere"),
        pytest.param(another_node_object, Reason.STALE_TOPOLOGY, id="a topology of an earlier Node object"),
        pytest.param(lambda world: world.put("nodes", "n0", node("n0", gpus=7)), Reason.STALE_TOPOLOGY, id="not allocatable"),
        pytest.param(
            lambda world: changed(world, lambda made: made["spec"].update(links=[])), Reason.NO_TOPOLOGY, id="no links at all"
        ),
    ],
)
def test_when_nothing_can_be_decided_about_a_node(happens: Callable[[World], Any], problem: Reason, leader: Leader) -> None:
    happens(leader.world)
    assert state(leader).problem is problem


@pytest.mark.parametrize("offered", [0, 7, 32])
def test_where_others_hand_out_the_gpus_their_number_says_nothing(offered: int, leader: Leader) -> None:
    """By claims a node offers none, and divided ones are more."""
    leader.world.put("nodes", "n0", node("n0", gpus=offered))
    assert state(leader).problem is Reason.STALE_TOPOLOGY
    reported = leader.world.topologies["n0"]
    reported["status"]["conditions"] = [{"type": "Conflict", "status": "False", "reason": "ReportOnly"}]
    leader.world.put("topologies", "n0", reported)
    assert state(leader).problem is None
    reported["status"]["conditions"] = [{"type": "Conflict", "status": "False", "reason": "NoOtherPlugin"}]
    leader.world.put("topologies", "n0", reported)
    assert state(leader).problem is Reason.STALE_TOPOLOGY


@pytest.mark.parametrize(
    ("entry", "held", "reason"),
    [
        ({"uuid": "GPU-n0-3", "podUID": 7}, (3, 6), None),
        ({"uuid": "", "podUID": "uid-x"}, (6,), Reason.UNREADABLE_HOLDER),
        ("GPU-n0-3", (6,), Reason.UNREADABLE_HOLDER),
    ],
    ids=["whose GPU is named", "whose GPU is not", "that is no object"],
)
def test_a_broken_entry_of_held_hides_no_other_and_gives_no_gpu_away(
    leader: Leader, entry: Any, held: tuple[int, ...], reason: Reason | None, caplog: pytest.LogCaptureFixture
) -> None:
    made = leader.world.topologies["n0"]
    made["status"]["held"] = [entry, {"uuid": "GPU-n0-6", "podUID": "uid-p"}]
    for _ in range(2):
        leader.world.put("topologies", "n0", made)
        assert (state(leader).taken, state(leader).problem) == (mask_of(held), reason)
    assert caplog.text.count("GPUTopology n0: status.held[0]") == 1
    made["status"]["held"] = []
    leader.world.put("topologies", "n0", made)
    assert (state(leader).taken, state(leader).problem) == (0, None)


def test_free_cpu_memory_and_pods_follow_from_living_pods_and_plans(leader: Leader) -> None:
    bound(leader.world, 1, gpus(0))
    planned(leader.world, 2, 3)
    assert (state(leader).free_cpu_millis, state(leader).free_pods) == (62_000, 108)


def test_a_sidecar_and_a_greedy_init_container_count_as_kube_scheduler_counts(leader: Leader) -> None:
    made = pod("p", 1, annotations={c.ANN_GPUS: gpus(0)}, nodeName="n0")
    made["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        {"name": "init", "resources": {"requests": {"cpu": "4"}}},
    ]
    leader.world.add_pod(made)
    assert state(leader).free_cpu_millis == 64_000 - 4_500


def test_a_pod_sees_its_own_plan_as_free_and_others_do_not(leader: Leader) -> None:
    uid = planned(leader.world, *range(8))["metadata"]["uid"]
    other, own = state(leader), leader.ledger.state_for(NODE, uid)
    assert own is not None
    assert (own.free.bit_count(), other.free.bit_count()) == (8, 0)
    assert (own.free_cpu_millis, other.free_cpu_millis) == (64_000, 63_000)


def test_a_node_that_is_gone_is_no_state(leader: Leader) -> None:
    leader.ledger.remove_node(NODE)
    assert (leader.ledger.state(NODE), leader.ledger.snapshot().nodes) == (None, {})


def test_unreadable_status_scheduling_does_not_stop_the_job(leader: Leader) -> None:
    made = job("j")
    made["status"]["scheduling"] = {"state": "Bogus"}
    leader.world.put("jobs", "j", made)
    leader.see()
    assert "uid-j" in leader.jobs.views
