"""Gangs without pods: their places are found and kept first, then the pods come and are released on them."""

import copy
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.contract.scheduling_record import PODS_NOT_CREATED
from kompakt_extender.gang_state import GangPhase
from kompakt_extender.node_state import ClaimSource
from kompakt_extender.planner.reserved_places import PATIENCE_SECONDS, PODS_DIFFER
from kompakt_extender.project_job import read_job
from tests.support.extender import preempting
from tests.support.extender.leader import Leader, gates, on_nodes
from tests.support.extender.phases import disagreements

OURS = {"schedulerName": c.SCHEDULER_NAME}


@pytest.fixture
async def kept() -> Leader:
    """j has places for two workers of four GPUs, on one of two machines."""
    leader = on_nodes()
    leader.world.add_expected_gang("j", 2, 4)
    await leader.settle()
    return leader


def told(leader: Leader, name: str = "j") -> tuple[str, str]:
    return leader.scheduling(name)["state"], leader.scheduling(name)["reason"]


def taken(leader: Leader) -> int:
    return sum(state.taken.bit_count() for state in leader.ledger.snapshot().nodes.values())


async def test_a_gang_without_pods_gets_places_that_nobody_else_gets(kept: Leader) -> None:
    assert told(kept) == ("Reserved", "CreatingPods")
    assert [len(seat.gpus) for seat in kept.seats("j")] == [4, 4]
    assert kept.jobs.states["uid-j"].phase is GangPhase.RESERVING
    await kept.place("other", 1, 8)
    assert told(kept, "other")[0] == "Released"
    assert {seat.node for seat in kept.seats("other")}.isdisjoint(seat.node for seat in kept.seats("j"))
    assert taken(kept) == 16


async def test_it_is_released_on_these_places_once_its_pods_exist(kept: Leader) -> None:
    places = [(seat.node, seat.gpus) for seat in kept.seats("j")]
    kept.world.create_pods("j", 1)
    await kept.settle()
    assert told(kept)[0] == "Reserved"
    kept.world.create_pods("j")
    await kept.settle()
    assert told(kept)[0] == "Released"
    assert [(seat.node, seat.gpus) for seat in kept.seats("j")] == places
    assert gates(kept.world, "j-worker-1-a1") == []
    assert taken(kept) == 8
    assert disagreements(kept) == []


async def test_what_waits_without_pods_is_told_why_and_placed_when_there_is_room(leader: Leader) -> None:
    await leader.place("full", 2, 8)
    leader.world.add_expected_gang("j", 1, 8)
    await leader.settle()
    assert told(leader) == ("Waiting", "Waiting")
    assert leader.scheduling("j")["waitingSince"] == "2026-01-31T12:00:00Z"
    for index in range(2):
        leader.world.delete_pod(f"full-worker-{index}-a1")
    await leader.settle()
    assert told(leader)[0] == "Reserved"


async def test_one_that_never_fits_is_told_so_without_pods(leader: Leader) -> None:
    leader.world.add_expected_gang("j", 3, 8)
    await leader.settle()
    assert told(leader) == ("Waiting", "NeverFits")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"nodeSelector": {"kubernetes.io/hostname": "n1"}}, id="nodes"),
        pytest.param({"priority": 7}, id="priority"),
        pytest.param({"containers": [{"name": "t", "resources": {"requests": {c.RESOURCE: "2"}}}]}, id="GPUs"),
    ],
)
async def test_pods_that_come_out_otherwise_are_planned_as_they_are(kept: Leader, change: dict[str, Any]) -> None:
    kept.world.create_pods("j", **change)
    kept.see()
    await kept.plan()
    assert told(kept) == ("Waiting", PODS_DIFFER)
    assert "j-worker-0-a1" in kept.scheduling("j")["message"]
    await kept.settle()
    assert told(kept)[0] == "Released"
    if "nodeSelector" in change:
        assert {seat.node for seat in kept.seats("j")} == {"n1"}
    assert disagreements(kept) == []


async def test_what_is_written_in_another_order_is_the_same(leader: Leader) -> None:
    rules = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    leader.world.add_expected_gang("j", 2, 4, tolerations=[dict(sorted(rules[0].items()))])
    await leader.settle()
    leader.world.create_pods("j", tolerations=rules)
    await leader.settle()
    assert told(leader)[0] == "Released"


async def test_places_are_given_back_when_no_pods_come_and_not_taken_again(kept: Leader) -> None:
    kept.wait(PATIENCE_SECONDS - 1)
    await kept.settle()
    assert told(kept)[0] == "Reserved"
    kept.wait(1)
    await kept.settle()
    assert told(kept) == ("Waiting", PODS_NOT_CREATED)
    assert taken(kept) == 0
    kept.world.create_pods("j")
    await kept.settle()
    assert told(kept)[0] == "Released"


async def test_each_pod_that_comes_gives_the_others_their_time(kept: Leader) -> None:
    kept.wait(PATIENCE_SECONDS - 1)
    kept.world.create_pods("j", 1)
    await kept.settle()
    kept.wait(PATIENCE_SECONDS - 1)
    await kept.settle()
    assert told(kept)[0] == "Reserved"


async def test_no_places_are_kept_for_pods_that_cannot_be_created(kept: Leader) -> None:
    made = kept.world.jobs["j"]
    del made["status"]["expectedPods"]
    kept.world.put("jobs", "j", made)
    await kept.settle()
    assert told(kept)[0] == "Waiting"
    assert "cannot be created" in kept.scheduling("j")["message"]
    assert taken(kept) == 0


@pytest.mark.parametrize("end", ["gone", "suspended", "restarted"])
async def test_a_job_that_goes_on_no_more_gives_its_places_back(kept: Leader, end: str) -> None:
    made = kept.world.jobs["j"]
    if end == "gone":
        del kept.world.jobs["j"]
        kept.world.news.append(("jobs", "uid-j", None))
    elif end == "suspended":
        made["spec"]["suspend"] = True
        kept.world.put("jobs", "j", made)
    else:
        made["status"]["attempt"] = 2
        kept.world.put("jobs", "j", made)
    await kept.settle()
    assert taken(kept) == 0
    assert disagreements(kept) == []


async def test_places_that_cannot_be_written_are_given_back(leader: Leader) -> None:
    leader.world.outcomes.extend(["401"])
    leader.world.add_expected_gang("j", 2, 4)
    leader.see()
    await leader.planner.run_cycle()
    assert taken(leader) == 8
    await leader.settle()
    assert disagreements(leader) == []


async def test_a_new_leader_keeps_the_places(kept: Leader) -> None:
    places = [(seat.node, seat.gpus) for seat in kept.seats("j")]
    kept.world.create_pods("j", 1)
    later = Leader(kept.world)
    later.take_over()
    assert taken(later) == 8
    later.world.create_pods("j")
    await later.settle()
    assert told(later)[0] == "Released"
    assert [(seat.node, seat.gpus) for seat in later.seats("j")] == places


async def test_a_new_leader_does_not_keep_what_others_have_by_now(kept: Leader) -> None:
    kept.world.add_expected_gang("other", 2, 8)
    forged = dict(kept.scheduling("j"))
    made = kept.world.jobs["other"]
    made["status"]["scheduling"] = {
        **forged,
        "plan": {
            **forged["plan"],
            "nodes": [
                {**node, "pods": [{"uid": f"uid-other/1/{i}", "gpus": "0,1,2,3,4,5,6,7"} for i in range(2)]}
                for node in forged["plan"]["nodes"]
            ],
        },
    }
    kept.world.put("jobs", "other", made)
    later = Leader(kept.world)
    later.take_over()
    assert taken(later) == 8
    assert later.jobs.states["uid-other"].places == ()
    await later.settle()
    assert told(later, "other")[0] == "Waiting"


async def test_a_new_leader_keeps_no_more_than_the_pods_ask_for(leader: Leader) -> None:
    """A forged plan has one of them twice, with GPUs that nobody has."""
    leader.world.add_expected_gang("j", 2, 2)
    await leader.settle()
    made = leader.world.jobs["j"]
    (node,) = made["status"]["scheduling"]["plan"]["nodes"]
    mine = {int(index) for pod in node["pods"] for index in pod["gpus"].split(",")}
    free = [str(index) for index in range(8) if index not in mine]
    node["pods"].append({**node["pods"][0], "gpus": ",".join(free[:2]), "rank": 2})
    leader.world.put("jobs", "j", made)
    later = Leader(leader.world)
    later.take_over()
    assert taken(later) == 0


async def test_two_pods_with_one_index_are_not_what_was_expected(kept: Leader) -> None:
    kept.world.create_pods("j", 1)
    twin = copy.deepcopy(kept.world.pods["j-worker-0-a1"])
    twin["metadata"] |= {"name": "twin", "uid": "uid-twin"}
    kept.world.add_pod(twin)
    kept.see()
    await kept.plan()
    assert told(kept) == ("Waiting", PODS_DIFFER)
    assert disagreements(kept) == []


async def test_a_new_leader_keeps_no_more_than_limits_let_a_job_have(kept: Leader) -> None:
    kept.world.set_limits("small", maxGPUs=4)
    later = Leader(kept.world)
    later.take_over()
    assert taken(later) == 0


async def test_a_running_gang_of_lower_priority_ends_for_one_without_pods(leader: Leader) -> None:
    await leader.place("low", 2, 8)
    for index in range(2):
        await leader.bind(f"low-worker-{index}-a1", f"n{index}")
    leader.see()
    leader.wait(3600)
    leader.world.add_expected_gang("j", 1, 8, priority=10)
    await leader.settle()
    assert told(leader) == ("Reserved", "Preempting")
    assert "plan" not in leader.scheduling("j")
    victim = leader.scheduling("j")["victims"][0]["name"]
    assert victim == "low"
    for index in range(2):
        leader.world.delete_pod(f"low-worker-{index}-a1")
    await leader.settle()
    assert told(leader) == ("Reserved", "CreatingPods")
    leader.world.create_pods("j", priority=10)
    await leader.settle()
    assert told(leader)[0] == "Released"
    assert disagreements(leader) == []


async def test_no_claim_is_left_of_pods_that_never_were(kept: Leader) -> None:
    kept.world.create_pods("j")
    await kept.settle()
    for index in range(2):
        kept.world.delete_pod(f"j-worker-{index}-a1")
    kept.see()
    assert taken(kept) == 0
    assert not any(kept.ledger.claims_on(node, ClaimSource.PLAN) for node in kept.ledger.nodes)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("text", id="no object"),
        pytest.param({"attempt": 2, "roles": [{"name": "worker", "pod": {"metadata": {}, "spec": {}}}]}, id="another attempt"),
        pytest.param({"attempt": 1, "roles": [{"name": "else", "pod": {"metadata": {}, "spec": {}}}]}, id="another role"),
        pytest.param({"attempt": 1, "roles": [{"name": "worker", "pod": {"spec": {"containers": 7}}}]}, id="no pod"),
        pytest.param(
            {"attempt": 1, "roles": [{"name": "worker", "pod": {"metadata": {}, "spec": {**OURS, "tolerations": [7]}}}]},
            id="no rules",
        ),
    ],
)
async def test_what_the_operator_never_writes_is_as_if_it_were_not_there(leader: Leader, written: Any) -> None:
    leader.world.add_expected_gang("j", 2, 4)
    made = leader.world.jobs["j"]
    made["status"]["expectedPods"] = written
    leader.world.put("jobs", "j", made)
    assert read_job(leader.world.news[-1][2] or b"").expected == ()
    await leader.settle()
    assert leader.world.sent == []


async def test_pods_of_a_higher_priority_than_was_expected_may_have_others_ended() -> None:
    """A gang that was told there is no room for it is asked about again as its pods are."""
    leader = on_nodes(1)
    await preempting.runs(leader, "low", 1, 8)
    leader.wait(3600)
    leader.world.add_expected_gang("j", 1, 1)
    await leader.settle()
    assert told(leader)[0] == "Waiting"
    leader.world.create_pods("j", priority=1)
    await leader.settle()
    assert told(leader) == ("Reserved", "Preempting")
