"""A job whose edges join GPUs of several pods, from its status to the pods' annotations."""

from typing import Any

from kompakt_core import contract as c
from kompakt_core.topology.machines import machine
from tests.support.extender.asking import Person
from tests.support.extender.office import Office
from tests.support.extender.world import WISH, job


def add(office: Office, workers: int, gpus: int, edges: list[dict[str, Any]]) -> None:
    """A waiting gang whose pods have no edges of their own inside."""
    wish = {**WISH, c.ANN_PATTERN: "None"}
    made = job("j", workers, gpus)
    made["spec"]["communication"] = {"pattern": "Custom", "customEdges": {"scope": "Gang", "edges": edges}}
    office.world.add_gang("j", workers, gpus)
    office.world.put("jobs", "j", made)
    for index in range(workers):
        pod = office.world.pods[f"j-worker-{index}-a1"]
        pod["metadata"]["annotations"] = wish
        office.world.add_pod(pod)


async def test_pods_that_talk_get_gpus_with_fast_links_between_them_and_ranks_by_index(office: Office) -> None:
    add(office, 4, 1, [{"from": 0, "to": 3, "weight": 2}, {"from": 1, "to": 2, "weight": 2}])
    await office.settle()
    plan = office.scheduling("j")["plan"]
    assert plan["level"] == "Machine"
    assert [seat["rank"] for seat in plan["pods"]] == [0, 1, 2, 3]
    place = [int(seat["gpus"][0].rsplit("-", 1)[1]) for seat in plan["pods"]]
    weights = machine("dgx1-v100").weights
    fastest = max(max(row) for row in weights)
    assert weights[place[0]][place[3]] == weights[place[1]][place[2]] == fastest
    assert plan["value"] == plan["ideal"] == fastest // 2


async def test_a_pods_explanation_says_that_edges_to_other_pods_counted(person: Person) -> None:
    office = person.office
    add(office, 2, 1, [{"from": 0, "to": 1}])
    await office.settle()
    name = "j-worker-0-a1"
    assert await office.bind(name, office.annotations(name)[c.ANN_PLANNED_NODE]) == ""
    office.see()
    assert "by the edges between its pods" in (await person.get(f"/pods/default/{name}"))["decision"]["note"]


async def test_edges_that_name_more_gpus_than_the_gang_has_are_refused_with_both_numbers(office: Office) -> None:
    add(office, 2, 1, [{"from": 0, "to": 3}])
    await office.settle()
    written = office.scheduling("j")
    assert written["state"] == "Waiting"
    assert "names 4 ranks, and the gang has 2 GPUs" in written["message"]
