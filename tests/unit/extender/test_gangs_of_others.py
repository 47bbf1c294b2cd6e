"""Pods that others made and that are placed together: when they are, what becomes of their object, what people are told."""

from typing import Any

import msgspec
import pytest

from kompakt_core import contract as c
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.explain.queries import UnknownObject
from kompakt_extender.gangs import numbered
from kompakt_extender.project import read_pod
from kompakt_extender.views import PodView
from tests.support.extender.leader import Leader, gates, on_nodes
from tests.support.extender.made_objects import gang_pod
from tests.support.extender.phases import disagreements

KEY = "default/train"


@pytest.fixture
def leader() -> Leader:
    return on_nodes()


async def come(leader: Leader, size: int = 2, gpus: int = 4, *, count: int | None = None, gang: str = "train") -> None:
    """So many pods of the gang are made; all by default."""
    for index in range(size if count is None else count):
        leader.world.add_pod(gang_pod(gang, index, size, gpus))
    await leader.settle()


async def bind_all(leader: Leader) -> None:
    """kube-scheduler binds what is planned, and the device plugins report it."""
    for name in sorted(leader.world.pods):
        node = leader.annotations(name)[c.ANN_PLANNED_NODE]
        assert await leader.bind(name, node) == ""
        leader.report(node)


def told(leader: Leader, key: str = KEY) -> tuple[str, str, str]:
    found = leader.scheduling(key)
    return found["state"], found["reason"], found["message"]


async def test_all_pods_get_their_places_at_once(leader: Leader) -> None:
    await come(leader, count=1)
    assert told(leader) == ("Waiting", "GangIncomplete", f"not all of its 2 pods exist yet, as many as {c.ANN_GANG_SIZE} says")
    assert "waitingSince" not in leader.scheduling(KEY), "it is not in line yet, and an empty moment is none"
    assert gates(leader.world, "train-0-x") != []
    await come(leader)
    assert told(leader)[:2] == ("Released", "Released")
    assert [gates(leader.world, name) for name in ("train-0-x", "train-1-y")] == [[], []]
    assert {len(seat.gpus) for seat in leader.seats(KEY)} == {4}
    assert disagreements(leader) == []


async def test_ranks_follow_the_numbers_in_the_names(leader: Leader) -> None:
    await come(leader, 16, 1)
    ranks = {name: int(leader.annotations(name)[c.ANN_RANK]) for name in leader.world.pods}
    assert [int(name.split("-")[1]) for name in sorted(ranks, key=ranks.__getitem__)] == list(range(16))


async def test_the_object_is_what_the_pods_say_and_goes_with_the_last_one(leader: Leader) -> None:
    await come(leader)
    assert leader.world.gangs[KEY]["spec"] == {"size": 2, "requiredLevel": "Cluster"}
    leader.world.finish_pod("train-0-x")
    leader.world.delete_pod("train-1-y")
    await leader.settle()
    assert KEY in leader.world.gangs, "one pod is there still, though it has ended"
    leader.world.delete_pod("train-0-x")
    await leader.settle()
    assert leader.world.gangs == {}
    assert KEY not in leader.jobs.states


async def test_the_object_of_pods_that_still_run_is_made_anew_where_somebody_deletes_it(leader: Leader) -> None:
    await come(leader)
    await bind_all(leader)
    before = leader.world.gangs.pop(KEY)["metadata"]["uid"]
    leader.world.news.append(("gangs", KEY, None))
    await leader.settle()
    assert leader.world.gangs[KEY]["metadata"]["uid"] != before
    assert "given nodes before this object was made" in told(leader)[2]


async def test_pods_that_are_all_made_anew_are_placed_as_a_whole_again(leader: Leader) -> None:
    await come(leader)
    first = leader.seats(KEY)
    for name in list(leader.world.pods):
        leader.world.delete_pod(name)
    for index in range(2):
        made = gang_pod("train", index, 2, 8)
        made["metadata"]["uid"] += "-second"
        leader.world.add_pod(made)
    await leader.settle()
    assert told(leader)[0] == "Released"
    assert {seat.uid for seat in leader.seats(KEY)}.isdisjoint(seat.uid for seat in first)
    assert {len(seat.gpus) for seat in leader.seats(KEY)} == {8}
    assert disagreements(leader) == []


async def test_one_that_deletes_the_object_and_makes_it_anew_leaves_nothing_of_the_old_plan(leader: Leader) -> None:
    """The watch may show both as one change."""
    await come(leader)
    made = leader.world.gangs[KEY]
    leader.world.put("gangs", KEY, {**made, "metadata": {**made["metadata"], "uid": "another"}, "status": {}})
    await leader.settle()
    assert told(leader)[0] == "Released"
    assert disagreements(leader) == []
    assert sum(state.taken.bit_count() for state in leader.ledger.snapshot().nodes.values()) == 8


@pytest.mark.parametrize(
    ("sizes", "levels", "words"),
    [
        ((2, 3), ("Rack", "Rack"), f"its pods say sizes 2 and 3: all must carry the same {c.ANN_GANG_SIZE}"),
        ((2, 2), ("Rack", "Block"), f"its pods say levels Block and Rack: all must carry the same {c.ANN_REQUIRED_LEVEL}"),
        ((1, 1), ("Rack", "Rack"), "2 living pods carry its label"),
    ],
)
async def test_pods_that_disagree_are_told_so(leader: Leader, sizes: tuple[int, ...], levels: Any, words: str) -> None:
    for index, (size, level) in enumerate(zip(sizes, levels, strict=True)):
        made = gang_pod("train", index, size)
        made["metadata"]["annotations"][c.ANN_REQUIRED_LEVEL] = level
        leader.world.add_pod(made)
    await leader.settle()
    assert told(leader)[:2] == ("Waiting", "GangIncomplete")
    assert words in told(leader)[2]
    await leader.place("other", 2, 8)
    assert leader.scheduling("other")["state"] == "Released", "no other gang waits for it"


async def test_a_gate_of_somebody_else_is_named_as_the_reason(leader: Leader) -> None:
    for index in range(2):
        made = gang_pod("train", index, 2)
        made["spec"]["schedulingGates"].append({"name": "example.com/quota"})
        leader.world.add_pod(made)
    await leader.settle()
    assert told(leader) == ("Waiting", "GangIncomplete", "its pods have scheduling gates of others, which must go first")


async def test_a_level_that_is_required_is_kept(leader: Leader) -> None:
    for index in range(2):
        made = gang_pod("train", index, 2, 8)
        made["metadata"]["annotations"][c.ANN_REQUIRED_LEVEL] = "Machine"
        leader.world.add_pod(made)
    await leader.settle()
    assert told(leader)[:2] == ("Waiting", "NeverFits")


async def test_two_gangs_of_one_name_in_two_namespaces_are_two(leader: Leader) -> None:
    for namespace in ("default", "other"):
        made = gang_pod("train", 0, 1)
        made["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}", "name": f"train-{namespace}"}
        leader.world.add_pod(made)
    await leader.settle()
    assert leader.world.gangs.keys() == {KEY, "other/train"}
    assert [told(leader, key)[0] for key in sorted(leader.world.gangs)] == ["Released", "Released"]


@pytest.mark.parametrize("outcome", ["lost", "unheard", "401", "429"])
async def test_the_object_is_written_again_where_the_first_write_failed(leader: Leader, outcome: str) -> None:
    leader.world.outcomes.append(outcome)
    await come(leader)
    assert told(leader)[0] == "Released"


async def test_limits_hold_for_them_as_for_jobs(leader: Leader) -> None:
    leader.world.set_limits("small", maxGPUs=7)
    await come(leader)
    state, reason, message = told(leader)
    assert (state, reason) == ("Waiting", "BeyondLimits")
    assert message.startswith("this gang asks for 8 GPUs; Limits small of the cluster allow 7")


async def full(leader: Leader, *, controlled: bool = True) -> None:
    """A gang of four runs on all GPUs, for longer than its minimum run time."""
    for index in range(4):
        made = gang_pod("train", index, 4, 4)
        if not controlled:
            del made["metadata"]["ownerReferences"]
        leader.world.add_pod(made)
    await leader.settle()
    await bind_all(leader)
    leader.wait(300)
    await leader.settle()


def stopping(leader: Leader) -> list[str]:
    return sorted(name for name, one in leader.world.pods.items() if "deletionTimestamp" in one["metadata"])


async def test_a_job_of_higher_priority_has_them_evicted_as_a_whole(leader: Leader) -> None:
    await full(leader)
    await leader.place("urgent", 1, 2, priority=1000)
    assert leader.scheduling("urgent")["reason"] == "Preempting"
    assert stopping(leader) == sorted(name for name in leader.world.pods if name.startswith("train-"))
    assert {one["attempt"] for one in leader.scheduling("urgent")["victims"]} == {0}
    for name in stopping(leader):
        leader.world.delete_pod(name)
    for node in leader.world.nodes:
        leader.report(node)
    for index in range(4):
        made = gang_pod("train", index, 4, 4)
        made["metadata"]["uid"] += "-second"
        leader.world.add_pod(made)
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"
    assert told(leader)[0] == "Waiting", "two GPUs are missing for it"
    assert stopping(leader) == [], "who is made anew in a victim's place is none"
    assert disagreements(leader) == []


async def test_bare_ones_and_those_that_a_budget_keeps_stay(leader: Leader) -> None:
    await full(leader, controlled=False)
    await leader.place("urgent", 1, 2, priority=1000)
    assert (leader.scheduling("urgent")["state"], stopping(leader)) == ("Waiting", [])


async def test_bare_ones_are_evicted_where_the_administrator_says_so() -> None:
    leader = on_nodes(policy=ClusterPolicy("no-wait", bare_pods=True))
    await full(leader, controlled=False)
    await leader.place("urgent", 1, 2, priority=1000)
    assert len(stopping(leader)) == 4


async def test_a_gang_with_a_pod_that_its_budget_keeps_is_left_alone_for_a_while(leader: Leader) -> None:
    await full(leader)
    leader.world.kept = set(leader.world.pods)
    await leader.place("urgent", 1, 2, priority=1000)
    for _ in range(3):
        leader.wait(10)
        await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Waiting"
    assert sum(path.endswith("/eviction") for _, path in leader.world.sent) == 4


async def test_limits_keep_them_from_others_and_shorten_their_minimum_run_time(leader: Leader) -> None:
    leader.world.add_namespace("default")
    leader.world.add_namespace("others")
    leader.world.set_limits("safe", mayBePreemptedByOthers=False)
    await full(leader)
    await leader.place("urgent", 1, 2, priority=1000, namespace="others")
    assert (leader.scheduling("urgent")["state"], stopping(leader)) == ("Waiting", [])
    leader.world.remove_limits("safe")
    await leader.settle()
    assert len(stopping(leader)) == 4


async def test_a_worker_of_a_training_job_stays_one_whatever_label_its_template_gives_it(leader: Leader) -> None:
    leader.world.add_gang("job", 2, 4)
    for name in list(leader.world.pods):
        made = leader.world.pods[name]
        made["metadata"]["labels"][c.LABEL_GANG] = "train"
        leader.world.add_pod(made)
    await leader.settle()
    assert leader.world.gangs == {}
    assert leader.scheduling("job")["state"] == "Released"


def view(name: str, **annotations: str) -> PodView:
    made = gang_pod("train", 0, 2)
    made["metadata"] |= {"name": name, "resourceVersion": "1"}
    made["metadata"]["annotations"] |= annotations
    return read_pod(msgspec.json.encode(made))


def test_names_are_ordered_by_the_numbers_in_them() -> None:
    names = [
        f"run-workers-{replica}-{index}-{end}" for replica, index, end in [(0, 2, "b"), (0, 10, "a"), (1, 0, "0"), (10, 1, "z")]
    ]
    found = numbered([view(name) for name in reversed(names)])
    assert [pod.name for pod in found] == names
    assert [pod.labels[c.LABEL_WORKER_INDEX] for pod in found] == ["0", "1", "2", "3"]


def test_a_size_that_cannot_be_read_is_the_pods_problem() -> None:
    found = view("p", **{c.ANN_GANG_SIZE: "many"})
    assert "'many' is not a whole number of pods" in found.problem
    assert (found.gang, found.job_uid, found.attempt) == (None, KEY, None)


async def test_what_is_decided_is_explained_by_the_gangs_name(leader: Leader) -> None:
    await come(leader)
    leader.world.add_gang("train", 2, 2)  # a TrainingJob of the same name
    await leader.settle()
    answer = leader.queries.gang("default", "train")()
    assert (answer.job, answer.state, answer.workers.present) == (KEY, "Released", 2)
    assert [pod.asks for pod in answer.pods] == [4, 4]
    assert [pod.asks for pod in leader.queries.job("default", "train")().pods] == [2, 2]
    of_pod = leader.queries.pod("default", "train-0-x")()
    assert (of_pod.job, of_pod.gang, of_pod.state) == ("", "train", "Planned")
    with pytest.raises(UnknownObject, match="no pods of a gang default/other"):
        leader.queries.gang("default", "other")


async def running(leader: Leader, size: int = 2, gpus: int = 4) -> None:
    """All pods of the gang have their nodes."""
    await come(leader, size, gpus)
    await bind_all(leader)


async def made_anew(leader: Leader, index: int, size: int = 2, gpus: int = 4) -> str:
    """The controller replaces a pod: the name of the new one."""
    old = next(name for name in leader.world.pods if name.startswith(f"train-{index}-"))
    node = leader.world.pods[old]["spec"]["nodeName"]
    leader.world.delete_pod(old)
    leader.report(node)
    made = gang_pod("train", index, size, gpus)
    made["metadata"] |= {"name": f"train-{index}-new", "uid": f"uid-new-{index}"}
    leader.world.add_pod(made)
    await leader.settle()
    return f"train-{index}-new"


async def test_one_pod_made_anew_is_planned_alone_beside_the_others(leader: Leader) -> None:
    await running(leader)
    before = {seat.uid: seat for seat in leader.seats(KEY)}
    new = await made_anew(leader, 1)
    assert gates(leader.world, new) != [], "it waits for a moment: perhaps the others go too"
    leader.wait(1)
    await leader.settle()
    assert gates(leader.world, new) == []
    after = {seat.uid: seat for seat in leader.seats(KEY)}
    assert after.keys() == {"uid-train-0-x", "uid-new-1"}
    assert after["uid-train-0-x"] == before["uid-train-0-x"]
    assert after["uid-new-1"].rank == 1
    assert told(leader)[:2] == ("Released", "Released")
    assert disagreements(leader) == []
    assert await leader.bind(new, after["uid-new-1"].node) == ""


async def test_it_goes_elsewhere_where_there_is_no_room_beside_them_and_waits_where_that_is_too_far() -> None:
    for level, state in (("Cluster", "Planned"), ("Machine", "Waiting")):
        leader = on_nodes()
        for index in range(2):
            made = gang_pod("train", index, 2, 4)
            made["metadata"]["annotations"][c.ANN_REQUIRED_LEVEL] = level
            leader.world.add_pod(made)
        await leader.settle()
        await bind_all(leader)
        (here,) = {pod["spec"]["nodeName"] for pod in leader.world.pods.values()}
        leader.world.delete_pod("train-1-y")
        leader.report(here)
        await leader.place("other", 1, 4)
        assert leader.seats("other")[0].node == here, "the policy packs"
        made = gang_pod("train", 1, 2, 4)
        made["metadata"]["uid"] = "uid-new"
        made["metadata"]["annotations"][c.ANN_REQUIRED_LEVEL] = level
        leader.world.add_pod(made)
        await leader.settle()
        leader.wait(1)
        await leader.settle()
        assert leader.queries.pod("default", "train-1-y")().state == state
        if state == "Waiting":
            wanted = "pods that were made anew wait beside those that run: there is no room for them now at the level Machine"
            assert told(leader)[:2] == ("Released", "PodsWait")
            assert told(leader)[2].startswith(wanted)
        else:
            assert leader.scheduling(KEY)["plan"]["level"] == "Cluster"
        assert disagreements(leader) == []


async def test_one_that_waits_gets_its_place_as_soon_as_there_is_room(leader: Leader) -> None:
    await running(leader)
    leader.world.delete_pod("train-1-y")
    leader.report(leader.world.pods["train-0-x"]["spec"]["nodeName"])
    for name, gpus in (("a", 4), ("b", 8)):
        await leader.place(name, 1, gpus)
    made = gang_pod("train", 1, 2, 4)
    made["metadata"]["uid"] = "uid-new"
    leader.world.add_pod(made)
    await leader.settle()
    leader.wait(1)
    await leader.settle()
    assert told(leader)[1] == "PodsWait"
    leader.world.delete_pod("a-worker-0-a1")
    await leader.settle()
    assert told(leader)[1] == "Released"
    assert gates(leader.world, "train-1-y") == []


async def test_a_newcomer_that_nobody_binds_loses_its_place_alone(leader: Leader) -> None:
    await running(leader)
    new = await made_anew(leader, 1)
    leader.wait(1)
    await leader.settle()
    first = leader.annotations(new)[c.ANN_PLANNED_NODE]
    leader.wait(121)
    await leader.settle()
    leader.wait(1)
    await leader.settle()
    assert leader.annotations(new)[c.ANN_PLANNED_NODE] != first
    assert told(leader)[0] == "Released"
    assert {seat.uid for seat in leader.seats(KEY)} == {"uid-train-0-x", "uid-new-1"}
    assert disagreements(leader) == []


async def test_a_new_leader_goes_on_with_a_gang_of_which_one_pod_is_new(leader: Leader) -> None:
    await running(leader)
    new = await made_anew(leader, 1)
    after = Leader(leader.world)
    after.take_over()
    after.wait(2)
    await after.settle()
    after.wait(1)
    await after.settle()
    assert gates(after.world, new) == []
    assert sum(state.taken.bit_count() for state in after.ledger.snapshot().nodes.values()) == 8


@pytest.mark.parametrize("outcome", ["lost", "unheard", "late", "401"])
async def test_no_write_that_fails_costs_the_others_their_places(leader: Leader, outcome: str) -> None:
    await running(leader)
    new = await made_anew(leader, 1)
    leader.wait(1)
    leader.world.outcomes.append(outcome)
    await leader.settle()
    leader.world.arrive_late()
    leader.wait(11)
    await leader.settle()
    assert gates(leader.world, new) == []
    assert {seat.uid for seat in leader.seats(KEY)} == {"uid-train-0-x", "uid-new-1"}
    assert disagreements(leader) == []


async def test_pods_that_go_one_after_the_other_are_planned_as_a_whole(leader: Leader) -> None:
    """A controller that restarts all of them makes the first anew before the last is gone."""
    await running(leader, 2, 8)
    await made_anew(leader, 0, 2, 8)
    leader.wait(0.5)
    await leader.settle()
    await made_anew(leader, 1, 2, 8)
    assert {seat.uid for seat in leader.seats(KEY)} == {"uid-new-0", "uid-new-1"}
    assert [gates(leader.world, f"train-{index}-new") for index in range(2)] == [[], []]
    assert disagreements(leader) == []


async def test_pods_that_ask_for_less_are_asked_about_again(leader: Leader) -> None:
    """Nothing else has changed: the object is the same, and so are the machines."""
    await come(leader, 2, 16)
    assert told(leader)[:2] == ("Waiting", "NeverFits")
    for index in range(2):
        leader.world.delete_pod(f"train-{index}-{'xy'[index]}")
        made = gang_pod("train", index, 2, 8)
        made["metadata"]["uid"] = f"uid-less-{index}"
        leader.world.add_pod(made)
    await leader.settle()
    assert told(leader)[:2] == ("Released", "Released")


async def test_pods_of_different_sizes_are_one_gang_as_ray_makes_them(leader: Leader) -> None:
    """A head without GPUs and two groups of workers; its name sorts before those of the workers."""
    sizes = {"train-head-x": 0, "train-large-worker-a": 8, "train-small-worker-b": 2, "train-small-worker-c": 2}
    for index, (name, gpus) in enumerate(sizes.items()):
        made = gang_pod("train", index, len(sizes), gpus)
        made["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        leader.world.add_pod(made)
    await leader.settle()
    assert told(leader)[:2] == ("Released", "Released")
    seats = {seat.uid: seat for seat in leader.seats(KEY)}
    assert {name: len(seats[f"uid-{name}"].gpus) for name in sizes} == sizes
    assert seats["uid-train-large-worker-a"].rank == 0, "rank 0 has GPUs"


async def test_a_pod_too_many_beside_those_that_run_is_told_so_until_it_goes(leader: Leader) -> None:
    await running(leader)
    leader.world.add_pod(gang_pod("train", 2, 2, 4))
    await leader.settle()
    leader.wait(2)
    await leader.settle()
    assert told(leader)[:2] == ("Released", "PodsWait")
    assert "3 living pods carry its label" in told(leader)[2]
    assert gates(leader.world, "train-2-z") != []
    leader.world.delete_pod("train-2-z")
    await leader.settle()
    assert told(leader) == ("Released", "Released", "all workers have their places on 1 node, level Machine, 25.0 of 25.0 GB/s")
    assert disagreements(leader) == []


async def test_pods_of_another_scheduler_are_no_gang(leader: Leader) -> None:
    made = gang_pod("train", 0, 1)
    made["spec"]["schedulerName"] = "default-scheduler"
    leader.world.add_pod(made)
    await leader.settle()
    assert leader.world.gangs == {}


async def test_a_gang_that_we_stumble_over_stops_no_other(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    pods_of = leader.jobs.pods_of

    def broken(uid: str) -> Any:
        assert uid != "default/broken"
        return pods_of(uid)

    monkeypatch.setattr(leader.jobs, "pods_of", broken)
    await come(leader, 1, gang="broken")
    await come(leader)
    assert leader.world.gangs.keys() == {KEY}
    assert told(leader)[0] == "Released"


async def test_pods_whose_gate_somebody_took_off_get_no_gpus_before_their_gang_has_a_plan(leader: Leader) -> None:
    """Members of admission.breakGlassGroup may; nobody else but the planner."""
    early = gang_pod("train", 0, 2, 4)
    del early["spec"]["schedulingGates"]
    leader.world.add_pod(early)
    await leader.settle()
    assert "the plan of this pod's gang" in await leader.bind("train-0-x", "n0"), "refused"
    leader.world.add_pod(gang_pod("train", 1, 2, 4))
    await leader.settle()
    assert told(leader)[:2] == ("Released", "Released")
    await bind_all(leader)


async def test_a_pod_without_gpus_that_was_let_go_and_has_a_node_keeps_its_gang_from_a_plan(leader: Leader) -> None:
    early = gang_pod("train", 0, 2, 0)
    del early["spec"]["schedulingGates"]
    early["spec"]["nodeName"] = "n0"
    leader.world.add_pod(early)
    leader.world.add_pod(gang_pod("train", 1, 2, 4))
    await leader.settle()
    assert told(leader)[:2] == ("Waiting", "GangIncomplete")
    leader.world.delete_pod("train-0-x")
    leader.world.add_pod(gang_pod("train", 0, 2, 0))
    await leader.settle()
    assert told(leader)[:2] == ("Released", "Released"), "made anew, with its gate"
