"""Plans that are taken back, and the nodes that are left out afterwards."""

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Reason
from kompakt_extender.rejections import TEXTS
from tests.support.extender.office import Office
from tests.support.extender.world import worker


async def released_but_unbound(office: Office, workers: int) -> str:
    office.world.add_gang("j", workers, 4)
    await office.settle()
    node: str = office.scheduling("j")["plan"]["pods"][0]["node"]
    return node


async def test_a_gang_not_bound_in_time_is_withdrawn_and_placed_on_other_nodes_in_the_same_attempt(office: Office) -> None:
    node = await released_but_unbound(office, 2)
    office.wait(119)
    await office.settle()
    assert office.scheduling("j")["state"] == "Released"
    office.wait(2)
    await office.settle()
    again = office.scheduling("j")
    assert again["state"] == "Released"
    assert again["attempt"] == 1
    assert [one["node"] for one in again["excludedNodes"]] == [node]
    other = {seat["node"] for seat in again["plan"]["pods"]}
    assert node not in other
    assert office.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE] in other
    assert await office.bind("j-worker-0-a1", other.pop()) == ""


async def test_what_an_earlier_plan_wrote_on_pods_counts_for_nothing_while_the_new_one_is_on_its_way(office: Office) -> None:
    node = await replanned_without_an_answer(office)
    taken = {name: state.taken.bit_count() for name, state in office.ledger.snapshot().nodes.items()}
    assert taken == {"n0": 8, "n1": 8} | {node: 0}
    successor = Office(office.world)
    successor.take_over()
    assert successor.ledger.snapshot().nodes[NodeName(node)].taken == 0


async def test_a_new_plan_that_did_not_reach_its_pods_is_written_on_them_again(office: Office) -> None:
    node = await replanned_without_an_answer(office)
    await office.settle()
    other = office.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    assert other != node
    assert await office.bind("j-worker-0-a1", other) == ""
    sent = len(office.world.sent)
    await office.settle()
    assert len(office.world.sent) == sent


async def replanned_without_an_answer(office: Office) -> str:
    """A gang that was not bound in time has a new plan, and the writes of it on its pods were lost; the node of the old one."""
    node = await released_but_unbound(office, 2)
    office.wait(121)
    await office.plan()  # the old plan is withdrawn
    office.see()
    office.world.outcomes.extend(["ok", "lost", "lost"])
    await office.plan()
    assert (office.scheduling("j")["state"], office.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]) == ("Released", node)
    return node


async def test_a_gang_that_mounts_claims_is_given_the_time_that_volumes_may_take(office: Office) -> None:
    office.world.add_gang("j", 2, 4, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    await office.settle()
    office.wait(599)
    await office.settle()
    assert office.scheduling("j")["excludedNodes"] == []
    office.wait(2)
    await office.settle()
    assert [one["reason"] for one in office.scheduling("j")["excludedNodes"]] == ["NotBound"]


async def test_a_partly_bound_gang_is_withdrawn_for_good_and_bind_refuses_the_rest(office: Office) -> None:
    node = await released_but_unbound(office, 2)
    assert await office.bind("j-worker-0-a1", node) == ""
    office.wait(121)
    await office.settle()
    assert office.scheduling("j")["state"] == "Withdrawn"
    assert "withdrawn" in await office.bind("j-worker-1-a1", node)
    sent = len(office.world.sent)
    await office.settle()
    assert len(office.world.sent) == sent  # the next attempt is the operator's


async def test_a_withdrawn_plan_gives_its_gpus_back(office: Office) -> None:
    await released_but_unbound(office, 4)
    office.wait(121)
    await office.settle()
    assert office.scheduling("j")["state"] == "Waiting"  # both nodes are left out now
    assert all(state.taken == 0 for state in office.ledger.snapshot().nodes.values())
    office.wait(600)
    await office.settle()
    assert office.scheduling("j")["state"] == "Released"


@pytest.mark.parametrize("leaves", [False, True], ids=["it is left out of the next attempt", "a pod on its way out says nothing"])
async def test_a_node_whose_kubelet_rejected_a_pod(leaves: bool, office: Office) -> None:
    """On a machine that comes back kubelet sees the old pods, on their way out, before its device plugin is there."""
    node = await released_but_unbound(office, 1)
    assert await office.bind("j-worker-0-a1", node) == ""
    rejected = office.world.pods["j-worker-0-a1"]
    rejected["metadata"] |= {"deletionTimestamp": "2026-11-21T12:00:00Z"} if leaves else {}
    rejected["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    office.world.add_pod(rejected)
    await office.settle()
    office.world.jobs["j"]["status"]["attempt"] = 2
    office.world.put("jobs", "j", office.world.jobs["j"])
    office.world.add_pod(worker("j", 0, 4, attempt=2))
    await office.settle()
    again = office.scheduling("j")
    assert (again["attempt"], again["state"]) == (2, "Released")
    assert [one["node"] for one in again["excludedNodes"]] == ([] if leaves else [node])
    assert leaves or again["plan"]["pods"][0]["node"] != node


async def test_a_plan_whose_gpus_kubelet_gave_to_a_bound_pod_is_refused(office: Office) -> None:
    """The first worker was bound with its own set; kubelet gave it the second one's, and the device plugin wrote so."""
    node = await released_but_unbound(office, 2)
    assert await office.bind("j-worker-0-a1", node) == ""
    bound = office.world.pods["j-worker-0-a1"]
    bound["metadata"]["annotations"][c.ANN_GPUS] = office.annotations("j-worker-1-a1")[c.ANN_PLANNED_GPUS]
    office.world.add_pod(bound)
    office.world.report(node)
    office.see()
    assert await office.bind("j-worker-1-a1", node) == TEXTS[Reason.PLANNED_TAKEN]
    assert office.world.pods["j-worker-1-a1"]["spec"].get("nodeName") is None
