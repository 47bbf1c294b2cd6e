"""Pods of others that have a job's labels are no workers of it: its controller says whose a pod is."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.made_objects import worker
from tests.support.extender.preempting import runs

RIGHT = job_owner.encode(JobOwner("default", "j", "uid-j"))
LABELS = worker("j", 0)["metadata"]["labels"]
WRONG = {
    "not the controller": {**RIGHT, "controller": False},
    "controller not told": {key: value for key, value in RIGHT.items() if key != "controller"},
    "another uid": {**RIGHT, "uid": "uid-other"},
    "another kind": {**RIGHT, "kind": "Job"},
    "another group": {**RIGHT, "apiVersion": "batch/v1"},
    "a group that begins alike": {**RIGHT, "apiVersion": "kompakt.dev.example/v1"},
}
OWNERS = st.lists(st.sampled_from(sorted(WRONG)), max_size=2).map(lambda names: [WRONG[name] for name in names])
FOREIGN = st.builds(
    lambda labels, owners, phase, bound, gated: (labels, owners, phase, bound, gated),
    st.dictionaries(st.sampled_from(sorted(LABELS)), st.sampled_from(["0", "1", "2", "j", "uid-j", "worker"])).map(
        lambda wrong: LABELS | wrong
    ),
    OWNERS,
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    st.booleans(),
    st.booleans(),
)


def foreign(index: int, labels: dict[str, str], owners: list[Any], phase: str, bound: bool, gated: bool) -> dict[str, Any]:
    """A pod without GPUs that looks like a worker of the job."""
    made = worker("j", index)
    made["metadata"] |= {"name": f"foreign-{index}", "uid": f"uid-foreign-{index}", "labels": labels, "ownerReferences": owners}
    made["spec"] |= {"containers": [{"name": "trainer"}], **({"nodeName": "n0"} if bound else {})}
    if not gated or bound:
        del made["spec"]["schedulingGates"]
    return made | {"status": {"phase": phase, "reason": "UnexpectedAdmissionError"}}


def shown(leader: Leader) -> tuple[Any, ...]:
    """What is decided about the job, and what its pods carry."""
    pods = {name: made for name, made in leader.world.pods.items() if name.startswith("j-worker-")}
    plan = leader.scheduling("j").get("plan")
    return leader.scheduling("j").get("state"), plan, {name: leader.annotations(name) for name in pods}


@settings(deadline=None, max_examples=60)
@given(st.lists(FOREIGN, min_size=1, max_size=4))
async def test_foreign_pods_change_nothing_of_a_job_and_nothing_is_written_on_them(others: list[Any]) -> None:
    alone, beside = on_nodes(2), on_nodes(2)
    made = [foreign(index, *other) for index, other in enumerate(others)]
    for one in made:
        beside.world.add_pod(one)
    before = copy.deepcopy(made)
    for leader in (alone, beside):
        await runs(leader, "j")
        await leader.settle()
    assert shown(beside) == shown(alone)
    assert shown(beside)[0] == "Released"
    assert [beside.world.pods[f"foreign-{index}"] for index in range(len(made))] == before


@pytest.mark.parametrize("first", [True, False], ids=["seen before the job", "seen after it"])
async def test_an_owner_is_one_of_the_same_namespace(first: bool) -> None:
    leader = on_nodes(2)
    other = foreign(0, LABELS, [RIGHT], "Pending", bound=False, gated=True)
    other["metadata"]["namespace"] = "elsewhere"
    if first:
        leader.add_pod(other)
    leader.world.add_gang("j")
    leader.see()
    leader.add_pod(other)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"
    assert other["spec"]["schedulingGates"]


async def test_a_pod_that_its_job_was_taken_off_is_no_worker_any_more() -> None:
    leader = on_nodes(2)
    leader.world.add_gang("j")
    leader.see()
    pod = leader.world.pods["j-worker-0-a1"]
    del pod["metadata"]["ownerReferences"]
    leader.add_pod(pod)
    assert [one.name for one in leader.jobs.pods_of("uid-j")] == ["j-worker-1-a1"]
    leader.world.delete_pod("j-worker-0-a1")
    leader.see()
    assert [one.name for one in leader.jobs.pods_of("uid-j")] == ["j-worker-1-a1"]
