"""Which GPUs count as taken, from objects alone."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName, mask_of
from kompakt_core.placement.model import Reason
from tests.support.extender.office import Office
from tests.support.extender.world import World, job, node, pod, worker

NODE = NodeName("n0")


@pytest.fixture
def office() -> Office:
    world = World()
    world.add_node("n0")
    office = Office(world)
    office.see()
    return office


def taken(office: Office) -> int:
    office.see()
    state = office.ledger.state(NODE)
    assert state is not None
    return state.taken


def gpus(*indices: int) -> str:
    return ",".join(f"GPU-n0-{i}" for i in indices)


def test_gpus_written_on_a_bound_pod_are_taken_until_it_finishes(office: Office) -> None:
    office.world.add_pod(pod("p", 2, annotations={c.ANN_GPUS: gpus(3, 1)}, nodeName="n0"))
    assert taken(office) == mask_of((1, 3))
    office.world.finish_pod("p")
    assert taken(office) == 0


def test_planned_gpus_of_a_released_pod_are_taken_until_it_is_bound_elsewhere(office: Office) -> None:
    made = worker("j", 0, 2)
    made["spec"]["schedulingGates"] = []
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(0, 1)}
    office.world.add_pod(made)
    assert taken(office) == mask_of((0, 1))
    made["spec"]["nodeName"] = "elsewhere"
    office.world.add_pod(made)
    assert taken(office) == 0


def test_a_plan_on_a_gated_pod_or_on_a_plain_one_takes_nothing(office: Office) -> None:
    notes = {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(0, 1)}
    gated = worker("j", 0, 2)
    gated["metadata"]["annotations"] |= notes
    office.world.add_pod(gated)
    office.world.add_pod(pod("plain", 2, annotations=notes))
    assert taken(office) == 0


def test_held_gpus_stay_taken_when_their_pod_was_deleted_by_force(office: Office) -> None:
    office.world.add_pod(pod("p", 2, annotations={c.ANN_GPUS: gpus(4, 5)}, nodeName="n0"))
    office.world.report("n0")
    office.world.delete_pod("p")
    assert taken(office) == mask_of((4, 5))
    office.world.report("n0")
    assert taken(office) == 0


def test_sick_gpus_are_taken(office: Office) -> None:
    made = office.world.topologies["n0"]
    made["spec"]["gpus"][6]["health"] = "Unhealthy"
    office.world.put("topologies", "n0", made)
    assert taken(office) == mask_of((6,))


def problem(office: Office) -> Reason | None:
    office.see()
    state = office.ledger.state(NODE)
    assert state is not None
    return state.problem


def test_a_pod_bound_past_us_makes_the_node_infeasible_until_the_plugin_reports(office: Office) -> None:
    office.world.add_pod(pod("bypass", 1, nodeName="n0"))
    assert problem(office) is Reason.UNREPORTED_POD
    office.world.topologies["n0"]["status"]["held"] = [{"uuid": "GPU-n0-7", "podUID": "uid-bypass"}]
    office.world.put("topologies", "n0", office.world.topologies["n0"])
    assert problem(office) is None
    assert taken(office) == mask_of((7,))


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
    office: Office, entry: Any, held: tuple[int, ...], reason: Reason | None, caplog: pytest.LogCaptureFixture
) -> None:
    made = office.world.topologies["n0"]
    made["status"]["held"] = [entry, {"uuid": "GPU-n0-6", "podUID": "uid-p"}]
    for _ in range(2):
        office.world.put("topologies", "n0", made)
        assert (taken(office), problem(office)) == (mask_of(held), reason)
    assert caplog.text.count("GPUTopology n0: status.held[0]") == 1
    made["status"]["held"] = []
    office.world.put("topologies", "n0", made)
    assert (taken(office), problem(office)) == (0, None)


@pytest.mark.parametrize("written", ["GPU-n0-0", "GPU-n0-0,GPU-other-1", ""])
def test_an_annotation_that_cannot_be_true_counts_as_none(office: Office, written: str) -> None:
    office.world.add_pod(pod("p", 2, annotations={c.ANN_GPUS: written}, nodeName="n0"))
    assert problem(office) is Reason.UNREPORTED_POD


def test_a_topology_of_an_earlier_node_object_is_stale(office: Office) -> None:
    made = node("n0")
    made["metadata"]["uid"] = "another"
    office.world.put("nodes", "n0", made)
    assert problem(office) is Reason.STALE_TOPOLOGY


def test_a_topology_out_of_step_with_allocatable_is_stale(office: Office) -> None:
    office.world.put("nodes", "n0", node("n0", gpus=7))
    assert problem(office) is Reason.STALE_TOPOLOGY


def test_a_broken_topology_is_none(office: Office) -> None:
    made = office.world.topologies["n0"]
    made["spec"]["links"] = []
    office.world.put("topologies", "n0", made)
    assert problem(office) is Reason.NO_TOPOLOGY


def test_free_cpu_memory_and_pods_follow_from_living_pods_and_plans(office: Office) -> None:
    office.world.add_pod(pod("p", 1, annotations={c.ANN_GPUS: gpus(0)}, nodeName="n0"))
    made = worker("j", 0, 2)
    made["spec"]["schedulingGates"] = []
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(2, 3)}
    office.world.add_pod(made)
    office.see()
    state = office.ledger.state(NODE)
    assert state is not None
    assert (state.free_cpu_millis, state.free_pods) == (62_000, 108)


def test_a_sidecar_and_a_greedy_init_container_count_as_kube_scheduler_counts(office: Office) -> None:
    def cpu(amount: str) -> dict[str, object]:
        return {"requests": {"cpu": amount}}

    made = pod("p", 1, annotations={c.ANN_GPUS: gpus(0)}, nodeName="n0")
    made["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": cpu("500m")},
        {"name": "init", "resources": cpu("4")},
    ]
    office.world.add_pod(made)
    office.see()
    state = office.ledger.state(NODE)
    assert state is not None
    assert state.free_cpu_millis == 64_000 - 4_500


def test_a_pod_sees_its_own_plan_as_free_and_others_do_not(office: Office) -> None:
    made = worker("j", 0, 8)
    made["spec"]["schedulingGates"] = []
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus(*range(8))}
    office.world.add_pod(made)
    office.see()
    own = office.ledger.state_for(NODE, made["metadata"]["uid"])
    other = office.ledger.state(NODE)
    assert own is not None
    assert other is not None
    assert (own.free.bit_count(), other.free.bit_count()) == (8, 0)
    assert (own.free_cpu_millis, other.free_cpu_millis) == (64_000, 63_000)


def test_a_node_that_is_gone_is_no_state(office: Office) -> None:
    office.ledger.remove_node(NODE)
    assert office.ledger.state(NODE) is None
    assert office.ledger.snapshot().nodes == {}


def test_unreadable_status_scheduling_does_not_stop_the_job(office: Office) -> None:
    made = job("j")
    made["status"]["scheduling"] = {"state": "Bogus"}
    office.world.put("jobs", "j", made)
    office.see()
    assert "uid-j" in office.jobs.views
