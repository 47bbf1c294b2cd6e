"""Which GPUs count as taken, from objects alone."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName, mask_of
from kompakt_core.placement.model import Reason
from tests.support.extender.leader import Leader
from tests.support.extender.world import World, job, node, pod, worker

NODE = NodeName("n0")


@pytest.fixture
def leader() -> Leader:
    world = World()
    world.add_node("n0")
    leader = Leader(world)
    leader.see()
    return leader


def taken(leader: Leader) -> int:
    leader.see()
    state = leader.ledger.state(NODE)
    assert state is not None
    return state.taken


def gpus(*indices: int) -> str:
    return ",".join(f"GPU-n0-{i}" for i in indices)


def test_gpus_written_on_a_bound_pod_are_taken_until_it_finishes(leader: Leader) -> None:
    leader.world.add_pod(pod("p", 2, annotations={c.ANN_GPUS: gpus(3, 1)}, nodeName="n0"))
    assert taken(leader) == mask_of((1, 3))
    leader.world.finish_pod("p")
    assert taken(leader) == 0


def test_planned_gpus_of_a_released_pod_are_taken_until_it_is_bound_elsewhere(leader: Leader) -> None:
    made = worker("j", 0, 2)
    made["spec"]["schedulingGates"] = []
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(0, 1)}
    leader.world.add_pod(made)
    assert taken(leader) == mask_of((0, 1))
    made["spec"]["nodeName"] = "elsewhere"
    leader.world.add_pod(made)
    assert taken(leader) == 0


def test_a_plan_on_a_gated_pod_or_on_a_plain_one_takes_nothing(leader: Leader) -> None:
    notes = {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(0, 1)}
    gated = worker("j", 0, 2)
    gated["metadata"]["annotations"] |= notes
    leader.world.add_pod(gated)
    leader.world.add_pod(pod("plain", 2, annotations=notes))
    assert taken(leader) == 0


def test_held_gpus_stay_taken_when_their_pod_was_deleted_by_force(leader: Leader) -> None:
    leader.world.add_pod(pod("p", 2, annotations={c.ANN_GPUS: gpus(4, 5)}, nodeName="n0"))
    leader.world.report("n0")
    leader.world.delete_pod("p")
    assert taken(leader) == mask_of((4, 5))
    leader.world.report("n0")
    assert taken(leader) == 0


def test_sick_gpus_are_taken(leader: Leader) -> None:
    made = leader.world.topologies["n0"]
    made["spec"]["gpus"][6]["health"] = "Unhealthy"
    leader.world.put("topologies", "n0", made)
    assert taken(leader) == mask_of((6,))


def problem(leader: Leader) -> Reason | None:
    leader.see()
    state = leader.ledger.state(NODE)
    assert state is not None
    return state.problem


def test_a_pod_bound_past_us_makes_the_node_infeasible_until_the_plugin_reports(leader: Leader) -> None:
    leader.world.add_pod(pod("bypass", 1, nodeName="n0"))
    assert problem(leader) is Reason.UNREPORTED_POD
    leader.world.topologies["n0"]["status"]["held"] = [{"uuid": "GPU-n0-7", "podUID": "uid-bypass"}]
    leader.world.put("topologies", "n0", leader.world.topologies["n0"])
    assert problem(leader) is None
    assert taken(leader) == mask_of((7,))


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
        assert (taken(leader), problem(leader)) == (mask_of(held), reason)
    assert caplog.text.count("GPUTopology n0: status.held[0]") == 1
    made["status"]["held"] = []
    leader.world.put("topologies", "n0", made)
    assert (taken(leader), problem(leader)) == (0, None)


@pytest.mark.parametrize("written", ["GPU-n0-0", "GPU-n0-0,GPU-other-1", ""])
def test_an_annotation_that_cannot_be_true_counts_as_none(leader: Leader, written: str) -> None:
    leader.world.add_pod(pod("p", 2, annotations={c.ANN_GPUS: written}, nodeName="n0"))
    assert problem(leader) is Reason.UNREPORTED_POD


def test_a_topology_of_an_earlier_node_object_is_stale(leader: Leader) -> None:
    made = node("n0")
    made["metadata"]["uid"] = "another"
    leader.world.put("nodes", "n0", made)
    assert problem(leader) is Reason.STALE_TOPOLOGY


def test_a_topology_out_of_step_with_allocatable_is_stale(leader: Leader) -> None:
    leader.world.put("nodes", "n0", node("n0", gpus=7))
    assert problem(leader) is Reason.STALE_TOPOLOGY


def test_a_broken_topology_is_none(leader: Leader) -> None:
    made = leader.world.topologies["n0"]
    made["spec"]["links"] = []
    leader.world.put("topologies", "n0", made)
    assert problem(leader) is Reason.NO_TOPOLOGY


def test_free_cpu_memory_and_pods_follow_from_living_pods_and_plans(leader: Leader) -> None:
    leader.world.add_pod(pod("p", 1, annotations={c.ANN_GPUS: gpus(0)}, nodeName="n0"))
    made = worker("j", 0, 2)
    made["spec"]["schedulingGates"] = []
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(2, 3)}
    leader.world.add_pod(made)
    leader.see()
    state = leader.ledger.state(NODE)
    assert state is not None
    assert (state.free_cpu_millis, state.free_pods) == (62_000, 108)


def test_a_sidecar_and_a_greedy_init_container_count_as_kube_scheduler_counts(leader: Leader) -> None:
    def cpu(amount: str) -> dict[str, object]:
        return {"requests": {"cpu": amount}}

    made = pod("p", 1, annotations={c.ANN_GPUS: gpus(0)}, nodeName="n0")
    made["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": cpu("500m")},
        {"name": "init", "resources": cpu("4")},
    ]
    leader.world.add_pod(made)
    leader.see()
    state = leader.ledger.state(NODE)
    assert state is not None
    assert state.free_cpu_millis == 64_000 - 4_500


def test_a_pod_sees_its_own_plan_as_free_and_others_do_not(leader: Leader) -> None:
    made = worker("j", 0, 8)
    made["spec"]["schedulingGates"] = []
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(*range(8))}
    leader.world.add_pod(made)
    leader.see()
    own = leader.ledger.state_for(NODE, made["metadata"]["uid"])
    other = leader.ledger.state(NODE)
    assert own is not None
    assert other is not None
    assert (own.free.bit_count(), other.free.bit_count()) == (8, 0)
    assert (own.free_cpu_millis, other.free_cpu_millis) == (64_000, 63_000)


def test_a_node_that_is_gone_is_no_state(leader: Leader) -> None:
    leader.ledger.remove_node(NODE)
    assert leader.ledger.state(NODE) is None
    assert leader.ledger.snapshot().nodes == {}


def test_unreadable_status_scheduling_does_not_stop_the_job(leader: Leader) -> None:
    made = job("j")
    made["status"]["scheduling"] = {"state": "Bogus"}
    leader.world.put("jobs", "j", made)
    leader.see()
    assert "uid-j" in leader.jobs.views
