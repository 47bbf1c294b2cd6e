"""Gangs that wait, in which order and with which words; plans that are taken back, and the nodes that are left out then."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Reason
from kompakt_extender.planner.waiting_status import NOT_ALL_REPORTED
from kompakt_extender.rejections import TEXTS
from tests.support.extender.leader import Leader, gates
from tests.support.extender.made_objects import job, node, worker
from tests.support.extender.scenario import played

SCENARIOS = {
    "a gang that does not fit now waits, holds nothing and says so once": """n0 n1 / big comes 2x8 -> big Released
        late comes 1x8 -> late Waiting; late because Waiting; late waitingSince 12:00:00; 16 GPUs taken
        30 s -> quiet
        big is gone -> late Released; late waitingSince 12:00:00""",
    "one that no node could ever hold is told so, and planned again when nodes come": """n0 n1
        j comes 3x8 -> j Waiting; j because NeverFits; j says 24
        node n2 is added -> j Released""",
    "priority comes before the time of arrival": """n0 n1 / full comes 2x8 / first comes 1x8 / 10 s; urgent comes 1x8 @100
        a pod of full is gone -> first Waiting; urgent Released""",
    "of equal priority who waits longer comes first": """n0 n1 / full comes 2x8 / z-first comes 1x8 / 10 s; a-second comes 1x8
        a pod of full is gone -> z-first Released; a-second Waiting""",
    "two gangs of one cycle never share a GPU": """n0 n1
        a comes 2x4; b comes 2x4; d comes 2x4 -> a Released; b Released; d Waiting; 16 GPUs taken""",
    "nothing moves after success": "n0 n1 / j comes 2x4 / 5 s -> j Released; quiet",
    "a gang not bound in time is placed on other nodes in the same attempt": """n0 n1 / j comes 2x4 -> j on n0
        119 s -> j on n0
        2 s -> j Released; j leaves out n0; j on n1
        j is bound -> j on n1; quiet""",
    "one that mounts claims is given the time that volumes may take": """n0 n1 / j comes 2x4 with-claims
        599 s -> j leaves out nothing
        2 s -> j leaves out n0""",
    "a withdrawn plan gives its GPUs back": """n0 n1 / j comes 4x4 -> 16 GPUs taken
        121 s -> j Waiting; j leaves out n0+n1; 0 GPUs taken
        600 s -> j Released""",
    "a node that fails a gang while it is written about is left out": """n0 / 8 pods on n0; j is held; j comes 2x4
        n0 fails j; j is answered -> j leaves out n0
        8 pods leave n0 -> j Waiting""",
}


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS.keys())
async def test_when_a_gang_gets_its_places(text: str) -> None:
    await played(text)


@pytest.mark.parametrize(
    ("workers", "change"),
    [(2, {}), (1, {"suspend": True}), (1, {"managedBy": "example.com/other"})],
    ids=["as long as a worker is missing", "while it is suspended", "when another controller manages it"],
)
async def test_a_gang_is_left_alone(workers: int, change: dict[str, Any], leader: Leader) -> None:
    made = job("j", workers)
    made["spec"] |= change
    leader.world.put("jobs", "j", made)
    leader.world.add_pod(worker("j", 0))
    await leader.settle()
    assert leader.world.sent == []


async def test_a_gang_with_a_foreign_gate_is_left_alone_until_ours_is_the_last(leader: Leader) -> None:
    leader.world.put("jobs", "j", job("j", workers=1))
    made = worker("j", 0)
    made["spec"]["schedulingGates"].append({"name": "kueue.x-k8s.io/admission"})
    leader.world.add_pod(made)
    await leader.settle()
    assert leader.world.sent == []
    del made["spec"]["schedulingGates"][1]
    leader.world.add_pod(made)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


async def test_an_unknown_pattern_is_refused_with_the_right_ones(leader: Leader) -> None:
    leader.world.put("jobs", "j", job("j", workers=1))
    made = worker("j", 0)
    made["metadata"]["annotations"][c.ANN_PATTERN] = "Moebius"
    leader.world.add_pod(made)
    await leader.settle()
    message = leader.scheduling("j")["message"]
    assert "Moebius" in message
    assert "Ring" in message
    assert gates(leader.world, "j-worker-0-a1") != []


def placed(leader: Leader, name: str) -> dict[str, str]:
    conditions: list[dict[str, str]] = leader.world.jobs[name]["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "Placed"), {})


@pytest.mark.parametrize("announced", ["by resource", "by label"])
async def test_never_is_not_said_while_a_node_has_not_reported_its_gpus(announced: str, leader: Leader) -> None:
    late = node("n2", gpus=8 if announced == "by resource" else 0)
    late["metadata"]["labels"][c.LABEL_MACHINE] = "" if announced == "by resource" else "dgx1-v100"
    leader.world.put("nodes", "n2", late)
    await leader.place("j", 3, 8)
    assert leader.scheduling("j")["state"] == "Waiting"
    assert placed(leader, "j")["reason"] == "Waiting"
    assert placed(leader, "j")["message"] == NOT_ALL_REPORTED
    leader.world.add_node("n2")
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


async def test_never_is_said_although_nodes_without_gpus_never_report(leader: Leader) -> None:
    leader.world.put("nodes", "cpu-only", node("cpu-only", gpus=0))
    await leader.place("j", 3, 8)
    assert placed(leader, "j")["reason"] == "NeverFits"


async def released_but_unbound(leader: Leader, workers: int) -> str:
    await leader.place("j", workers, 4)
    return leader.seats("j")[0].node


async def test_what_an_earlier_plan_wrote_on_pods_counts_for_nothing_while_the_new_one_is_on_its_way(leader: Leader) -> None:
    node = await replanned_without_an_answer(leader)
    taken = {name: state.taken.bit_count() for name, state in leader.ledger.snapshot().nodes.items()}
    assert taken == {"n0": 8, "n1": 8} | {node: 0}
    successor = Leader(leader.world)
    successor.take_over()
    assert successor.ledger.snapshot().nodes[NodeName(node)].taken == 0


async def test_a_new_plan_that_did_not_reach_its_pods_is_written_on_them_again(leader: Leader) -> None:
    node = await replanned_without_an_answer(leader)
    await leader.settle()
    other = leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    assert other != node
    assert await leader.bind("j-worker-0-a1", other) == ""
    sent = len(leader.world.sent)
    await leader.settle()
    assert len(leader.world.sent) == sent


async def replanned_without_an_answer(leader: Leader) -> str:
    """A gang that was not bound in time has a new plan, and the writes of it on its pods were lost; the node of the old one."""
    node = await released_but_unbound(leader, 2)
    leader.wait(121)
    await leader.plan()  # the old plan is withdrawn
    leader.see()
    leader.world.outcomes.extend(["ok", "lost", "lost"])
    await leader.plan()
    assert (leader.scheduling("j")["state"], leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]) == ("Released", node)
    return node


async def test_a_partly_bound_gang_is_withdrawn_for_good_and_bind_refuses_the_rest(leader: Leader) -> None:
    node = await released_but_unbound(leader, 2)
    assert await leader.bind("j-worker-0-a1", node) == ""
    leader.wait(121)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Withdrawn"
    assert "withdrawn" in await leader.bind("j-worker-1-a1", node)
    sent = len(leader.world.sent)
    await leader.settle()
    assert len(leader.world.sent) == sent  # the next attempt is the operator's


@pytest.mark.parametrize("step", [3600.0, -3600.0])
async def test_a_step_of_the_clock_withdraws_no_plan_and_lets_none_stand_longer(leader: Leader, step: float) -> None:
    await released_but_unbound(leader, 2)
    leader.stepped = step
    leader.wait(1)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"
    leader.stepped = 0.0
    leader.wait(120)
    await leader.plan()
    assert leader.scheduling("j")["state"] == "Withdrawn"


@pytest.mark.parametrize("leaves", [False, True], ids=["it is left out of the next attempt", "a pod on its way out says nothing"])
async def test_a_node_whose_kubelet_rejected_a_pod(leaves: bool, leader: Leader) -> None:
    """On a machine that comes back kubelet sees the old pods, on their way out, before its device plugin is there."""
    node = await released_but_unbound(leader, 1)
    assert await leader.bind("j-worker-0-a1", node) == ""
    rejected = leader.world.pods["j-worker-0-a1"]
    rejected["metadata"] |= {"deletionTimestamp": "2026-11-21T12:00:00Z"} if leaves else {}
    rejected["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    leader.world.add_pod(rejected)
    await leader.settle()
    leader.world.jobs["j"]["status"]["attempt"] = 2
    leader.world.put("jobs", "j", leader.world.jobs["j"])
    leader.world.add_pod(worker("j", 0, 4, attempt=2))
    await leader.settle()
    again = leader.scheduling("j")
    assert (again["attempt"], again["state"]) == (2, "Released")
    assert [one["node"] for one in again["excludedNodes"]] == ([] if leaves else [node])
    assert leaves or leader.seats("j")[0].node != node


async def test_a_plan_whose_gpus_kubelet_gave_to_a_bound_pod_is_refused(leader: Leader) -> None:
    """The first worker was bound with its own set; kubelet gave it the second one's, and the device plugin wrote so."""
    node = await released_but_unbound(leader, 2)
    assert await leader.bind("j-worker-0-a1", node) == ""
    bound = leader.world.pods["j-worker-0-a1"]
    bound["metadata"]["annotations"][c.ANN_GPUS] = leader.annotations("j-worker-1-a1")[c.ANN_PLANNED_GPUS]
    leader.world.add_pod(bound)
    leader.report(node)
    assert await leader.bind("j-worker-1-a1", node) == TEXTS[Reason.PLANNED_TAKEN]
    assert leader.world.pods["j-worker-1-a1"]["spec"].get("nodeName") is None
