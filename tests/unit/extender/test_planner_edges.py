"""A job whose edges join GPUs of several pods, from its status to the pods' annotations."""

from typing import Any

from kompakt_core import contract as c
from kompakt_core.topology.machines import machine
from tests.support.extender.explain_client import ExplainClient
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import RING, job


def add(leader: Leader, workers: int, gpus: int, edges: list[dict[str, Any]]) -> None:
    """A waiting gang whose pods have no edges of their own inside."""
    gpu_request = {**RING, c.ANN_PATTERN: "None"}
    made = job("j", workers, gpus)
    made["spec"]["communication"] = {"pattern": "Custom", "customEdges": {"scope": "Gang", "edges": edges}}
    leader.world.add_gang("j", workers, gpus)
    leader.world.put("jobs", "j", made)
    for index in range(workers):
        pod = leader.world.pods[f"j-worker-{index}-a1"]
        pod["metadata"]["annotations"] = gpu_request
        leader.world.add_pod(pod)


async def test_pods_that_talk_get_gpus_with_fast_links_between_them_and_ranks_by_index(leader: Leader) -> None:
    add(leader, 4, 1, [{"from": 0, "to": 3, "weight": 2}, {"from": 1, "to": 2, "weight": 2}])
    await leader.settle()
    plan = leader.scheduling("j")["plan"]
    assert plan["level"] == "Machine"
    assert [seat.rank for seat in leader.seats("j")] == [0, 1, 2, 3]
    place = [seat.indices[0] for seat in leader.seats("j")]
    weights = machine("dgx1-v100").weights
    fastest = max(max(row) for row in weights)
    assert weights[place[0]][place[3]] == weights[place[1]][place[2]] == fastest
    assert plan["value"] == plan["ideal"] == fastest // 2


async def test_a_pods_explanation_says_that_edges_to_other_pods_counted(client: ExplainClient) -> None:
    leader = client.leader
    add(leader, 2, 1, [{"from": 0, "to": 1}])
    await leader.settle()
    name = "j-worker-0-a1"
    assert await leader.bind(name, leader.annotations(name)[c.ANN_PLANNED_NODE]) == ""
    leader.see()
    assert "by the edges between its pods" in (await client.get(f"/pods/default/{name}"))["decision"]["note"]


async def test_edges_that_name_more_gpus_than_the_gang_has_are_refused_with_both_numbers(leader: Leader) -> None:
    add(leader, 2, 1, [{"from": 0, "to": 3}])
    await leader.settle()
    written = leader.scheduling("j")
    assert written["state"] == "Waiting"
    assert "names 4 ranks, and the gang has 2 GPUs" in written["message"]
