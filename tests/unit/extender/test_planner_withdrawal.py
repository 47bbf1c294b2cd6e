"""Plans that are taken back, and the nodes that are left out afterwards."""

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Reason
from kompakt_extender.rejections import TEXTS
from tests.support.extender.leader import Leader
from tests.support.extender.world import worker


async def released_but_unbound(leader: Leader, workers: int) -> str:
    leader.world.add_gang("j", workers, 4)
    await leader.settle()
    node: str = leader.scheduling("j")["plan"]["pods"][0]["node"]
    return node


async def test_a_gang_not_bound_in_time_is_withdrawn_and_placed_on_other_nodes_in_the_same_attempt(leader: Leader) -> None:
    node = await released_but_unbound(leader, 2)
    leader.wait(119)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"
    leader.wait(2)
    await leader.settle()
    again = leader.scheduling("j")
    assert again["state"] == "Released"
    assert again["attempt"] == 1
    assert [one["node"] for one in again["excludedNodes"]] == [node]
    other = {seat["node"] for seat in again["plan"]["pods"]}
    assert node not in other
    assert leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE] in other
    assert await leader.bind("j-worker-0-a1", other.pop()) == ""


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


async def test_a_gang_that_mounts_claims_is_given_the_time_that_volumes_may_take(leader: Leader) -> None:
    leader.world.add_gang("j", 2, 4, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    await leader.settle()
    leader.wait(599)
    await leader.settle()
    assert leader.scheduling("j")["excludedNodes"] == []
    leader.wait(2)
    await leader.settle()
    assert [one["reason"] for one in leader.scheduling("j")["excludedNodes"]] == ["NotBound"]


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


async def test_a_withdrawn_plan_gives_its_gpus_back(leader: Leader) -> None:
    await released_but_unbound(leader, 4)
    leader.wait(121)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Waiting"  # both nodes are left out now
    assert all(state.taken == 0 for state in leader.ledger.snapshot().nodes.values())
    leader.wait(600)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


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
    assert leaves or again["plan"]["pods"][0]["node"] != node


async def test_a_plan_whose_gpus_kubelet_gave_to_a_bound_pod_is_refused(leader: Leader) -> None:
    """The first worker was bound with its own set; kubelet gave it the second one's, and the device plugin wrote so."""
    node = await released_but_unbound(leader, 2)
    assert await leader.bind("j-worker-0-a1", node) == ""
    bound = leader.world.pods["j-worker-0-a1"]
    bound["metadata"]["annotations"][c.ANN_GPUS] = leader.annotations("j-worker-1-a1")[c.ANN_PLANNED_GPUS]
    leader.world.add_pod(bound)
    leader.world.report(node)
    leader.see()
    assert await leader.bind("j-worker-1-a1", node) == TEXTS[Reason.PLANNED_TAKEN]
    assert leader.world.pods["j-worker-1-a1"]["spec"].get("nodeName") is None
