"""filter and prioritize over HTTP, on bytes, as kube-scheduler calls them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.placement.model import Reason
from kompakt_extender.rejections import TEXTS
from kompakt_extender.scores import scores_of
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import node, pod
from tests.support.extender.scheduler import Scheduler, occupy

SENSITIVE = {c.ANN_PATTERN: "Ring", c.ANN_SENSITIVITY: "High"}


async def test_plain_pods_pass_where_enough_gpus_are_free(scheduler: Scheduler) -> None:
    occupy(scheduler.leader, "busy", "n0", *range(6))
    scheduler.leader.world.add_pod(pod("p", 3))
    answer = await scheduler.filter("p")
    assert answer["NodeNames"] == ["n1", "pcie"]
    assert answer["FailedNodes"] == {"n0": "node(s) had too few free GPUs"}
    assert answer["Error"] == ""


async def test_a_rejection_is_word_for_word_the_same_while_free_counts_change(scheduler: Scheduler) -> None:
    scheduler.leader.world.add_pod(pod("p", 8))
    texts = set()
    for index in range(4):
        occupy(scheduler.leader, f"busy{index}", "n0", index)
        texts.add((await scheduler.filter("p", "n0"))["FailedNodes"]["n0"])
    assert len(texts) == 1


CUSTOM = {c.ANN_PATTERN: "Custom", c.ANN_EDGES: "0-1,1-2"}


@pytest.mark.parametrize(
    ("most", "made", "words"),
    [
        ({"maxGPUs": 2}, pod("p", 3), "this pod asks for 3 GPUs; Limits few of the cluster allow 2 (maxGPUs)"),
        ({"maxEdges": 1}, pod("p", 3, annotations=CUSTOM), "2 custom edges"),
        ({"mayUseCustomPatterns": False}, pod("p", 3, annotations=CUSTOM), "this pod has pattern Custom"),
        ({"maxGracePeriodSeconds": 29}, pod("p", 3), "30 as terminationGracePeriodSeconds"),
        ({"maxGracePeriodSeconds": 90}, pod("p", 3, terminationGracePeriodSeconds=91), "91 as terminationGracePeriodSeconds"),
        ({"maxGPUs": 2, "priorityClassNames": ["low"]}, pod("p", 3, priorityClassName="low"), "3 GPUs"),
    ],
)
async def test_a_plain_pod_is_held_to_limits_on_every_node(
    most: dict[str, Any], made: dict[str, Any], words: str, scheduler: Scheduler
) -> None:
    leader = scheduler.leader
    leader.world.add_namespace("default")
    leader.world.set_limits("few", **most)
    leader.add_pod(made)
    answer = await scheduler.filter("p")
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"].keys() == {"n0", "n1", "pcie"}
    assert words in answer["FailedAndUnresolvableNodes"]["n0"]
    assert words in leader.queries.pod("default", "p")().message
    leader.world.remove_limits("few")
    leader.see()
    assert (await scheduler.filter("p"))["NodeNames"] == ["n0", "n1", "pcie"]


async def test_custom_edges_that_limits_forbid_are_never_weighed(scheduler: Scheduler) -> None:
    """Weighing them is what takes long."""
    leader = scheduler.leader
    leader.world.add_namespace("default")
    leader.world.set_limits("few", mayUseCustomPatterns=False)
    leader.add_pod(pod("p", 3, annotations=CUSTOM))
    assert (await scheduler.filter("p"))["NodeNames"] == []
    assert leader.answers.boards._boards == {}


@pytest.mark.parametrize(
    "most", [{"maxGPUs": 3}, {"maxMinRuntimeSeconds": 0}, {"maxGPUs": 2, "priorityClassNames": ["low"]}], ids=str
)
async def test_limits_that_let_a_plain_pod_be_change_nothing(most: dict[str, Any], scheduler: Scheduler) -> None:
    leader = scheduler.leader
    leader.world.set_limits("few", **most)
    leader.add_pod(pod("p", 3))
    assert (await scheduler.filter("p"))["NodeNames"] == ["n0", "n1", "pcie"]


async def test_a_worker_whose_gang_has_its_places_is_not_held_to_limits_that_come_later(scheduler: Scheduler) -> None:
    leader = scheduler.leader
    await leader.place("j", 2, 4)
    leader.world.set_limits("few", maxGPUs=1)
    leader.see()
    node = leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    assert (await scheduler.filter("j-worker-0-a1"))["NodeNames"] == [node]


async def test_a_node_that_is_not_known_fails_and_stops_nothing(scheduler: Scheduler) -> None:
    scheduler.leader.world.add_pod(pod("p", 1))
    answer = await scheduler.filter("p", "n0", "brand-new")
    assert answer["NodeNames"] == ["n0"]
    assert answer["FailedNodes"] == {"brand-new": TEXTS[Reason.UNKNOWN_NODE]}
    assert await scheduler.scores("p", "n0", "brand-new") == {"n0": 10, "brand-new": 0}


def spoil(leader: Leader, what: Reason) -> None:
    """n0 becomes a node about whose GPUs nothing can be decided."""
    world = leader.world
    if what is Reason.NODE_NOT_READY:
        world.put("nodes", "n0", node("n0", conditions=[{"type": "Ready", "status": "Unknown"}]))
    elif what is Reason.NO_TOPOLOGY:
        leader.handlers.topologies().remove("n0")
    elif what is Reason.STALE_TOPOLOGY:
        world.put("nodes", "n0", node("n0", gpus=7))
    else:
        world.add_pod(pod("bypass", 3, nodeName="n0"))
    leader.see()


@pytest.mark.parametrize(
    "what", [Reason.NODE_NOT_READY, Reason.NO_TOPOLOGY, Reason.STALE_TOPOLOGY, Reason.UNREPORTED_POD], ids=lambda one: one.value
)
@pytest.mark.parametrize("planned", [False, True])
async def test_a_node_of_which_nothing_is_known_for_sure_takes_nothing_and_says_why(
    what: Reason, planned: bool, scheduler: Scheduler
) -> None:
    leader = scheduler.leader
    leader.world.add_pod(pod("p", 2))
    if planned:
        occupy(leader, "full-1", "n1", *range(8))
        occupy(leader, "full-2", "pcie", *range(8))
        await leader.place("j", 1, 2)
    name = "j-worker-0-a1" if planned else "p"
    leader.see()
    assert (await scheduler.filter(name, "n0"))["NodeNames"] == ["n0"]
    spoil(leader, what)
    for _ in range(2):
        assert (await scheduler.filter(name, "n0"))["FailedNodes"] == {"n0": TEXTS[what]}
    assert await leader.bind(name, "n0") == TEXTS[what]
    assert [method for method, path in leader.world.sent if path.endswith("binding")] == []


async def test_a_gang_pod_passes_only_on_its_planned_node_and_only_while_the_plan_stands(scheduler: Scheduler) -> None:
    leader = scheduler.leader
    await leader.place("j", 2, 4)
    node = leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    answer = await scheduler.filter("j-worker-0-a1")
    assert answer["NodeNames"] == [node]
    assert set(answer["FailedAndUnresolvableNodes"].values()) == {TEXTS[Reason.NOT_PLANNED]}
    leader.wait(121)
    await leader.planner.run_cycle()
    assert (await scheduler.filter("j-worker-0-a1"))["NodeNames"] == []


async def test_a_gang_of_one_may_go_where_its_value_is_reached_and_prefers_its_plan(scheduler: Scheduler) -> None:
    leader = scheduler.leader
    occupy(leader, "full", "pcie", *range(8))
    await leader.place("j", 1, 4)
    node = leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    other = {"n0": "n1", "n1": "n0"}[node]
    assert (await scheduler.filter("j-worker-0-a1", "n0", "n1"))["NodeNames"] == ["n0", "n1"]
    scores = await scheduler.scores("j-worker-0-a1", "n0", "n1")
    assert scores[node] >= 9
    assert scores[other] == 0
    occupy(leader, "half", other, 1, 2, 4)  # no four left there form a ring of NVLinks
    answer = await scheduler.filter("j-worker-0-a1", "n0", "n1")
    assert answer["NodeNames"] == [node]
    assert answer["FailedNodes"] == {other: "node(s) had no free GPU set as fast as planned"}
    assert await leader.bind("j-worker-0-a1", other) != ""
    assert await leader.bind("j-worker-0-a1", node) == ""


async def test_planned_gpus_are_closed_to_plain_pods(scheduler: Scheduler) -> None:
    leader = scheduler.leader
    await leader.place("j", 2, 8)
    used = {leader.annotations(f"j-worker-{i}-a1")[c.ANN_PLANNED_NODE] for i in range(2)}
    leader.world.add_pod(pod("p", 1))
    assert set((await scheduler.filter("p"))["NodeNames"]) == {"n0", "n1", "pcie"} - used


async def test_a_pod_that_is_sensitive_prefers_speed_and_one_that_is_not_leaves_it_to_others(scheduler: Scheduler) -> None:
    world = scheduler.leader.world
    occupy(scheduler.leader, "some", "n1", 0)
    world.add_pod(pod("fast", 2, annotations=SENSITIVE))
    world.add_pod(pod("any", 2))
    fast, anywhere = await scheduler.scores("fast"), await scheduler.scores("any")
    assert max(fast, key=fast.__getitem__) == "pcie"  # bridged A100 pairs: 300 GB/s
    assert all(0 <= score <= 10 for score in (*fast.values(), *anywhere.values()))
    assert len(set(fast.values())) > 1


async def test_scores_follow_every_change_of_a_node(scheduler: Scheduler) -> None:
    scheduler.leader.world.add_pod(pod("p", 4, annotations=SENSITIVE))
    before = await scheduler.scores("p", "n0", "n1")
    assert before["n0"] == before["n1"]
    occupy(scheduler.leader, "busy", "n0", 0, 5)
    after = await scheduler.scores("p", "n0", "n1")
    assert after["n0"] == 0 < after["n1"]
    scheduler.leader.world.finish_pod("busy")
    scheduler.leader.see()
    assert await scheduler.scores("p", "n0", "n1") == before


@pytest.mark.parametrize("annotations", [SENSITIVE, {c.ANN_POLICY: "Packed"}, {}], ids=["sensitive", "packed", "insensitive"])
async def test_of_a_burst_of_equal_pods_not_all_queue_up_for_one_node(annotations: dict[str, str], scheduler: Scheduler) -> None:
    leader = scheduler.leader
    for name in ("a", "b"):
        leader.world.add_pod(pod(name, 1, annotations=annotations))
    assert await leader.bind("a", "n0") == ""
    leader.see()
    scores = await scheduler.scores("b", "n0", "n1")
    assert scores["n1"] > scores["n0"]
    leader.report("n0")
    scores = await scheduler.scores("b", "n0", "n1")
    assert scores["n0"] > scores["n1"]  # a node that is begun comes before an empty one


async def test_only_the_best_the_cluster_could_ever_give_gets_ten(scheduler: Scheduler) -> None:
    leader = scheduler.leader
    leader.world.add_pod(pod("p", 2, annotations=SENSITIVE))
    assert (await scheduler.scores("p"))["pcie"] == 10  # bridged A100 pairs are the fastest of two anywhere
    for number, pair in enumerate(((0, 2), (1, 3), (4, 6), (5, 7))):
        occupy(leader, f"half-of-{number}", "pcie", pair[number % 2])
    scores = await scheduler.scores("p")
    assert scores == {"n0": 9, "n1": 9, "pcie": 0}
    leader.handlers.topologies().remove("pcie")  # the fastest machine left the cluster: now DGX-1 is the ideal
    assert await scheduler.scores("p", "n0", "n1") == {"n0": 10, "n1": 10}


async def test_a_planned_node_that_is_not_ideal_is_first_but_has_no_ten(scheduler: Scheduler) -> None:
    leader = scheduler.leader
    for number, pair in enumerate(((0, 2), (1, 3), (4, 6), (5, 7))):
        occupy(leader, f"half-of-{number}", "pcie", pair[number % 2])
    await leader.place("j", 1, 2)
    node = leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    scores = await scheduler.scores("j-worker-0-a1", "n0", "n1")
    assert scores.pop(node) == 9
    assert set(scores.values()) == {0}


@pytest.mark.parametrize("kind", ["two containers", "init container"])
async def test_gpus_in_more_than_one_container_are_refused_everywhere(kind: str, scheduler: Scheduler) -> None:
    made = pod("p", 1)
    key = "containers" if kind == "two containers" else "initContainers"
    made["spec"].setdefault(key, []).append({"name": "more", "resources": {"limits": {c.RESOURCE: "1"}}})
    scheduler.leader.world.add_pod(made)
    answer = await scheduler.filter("p")
    assert answer["NodeNames"] == []
    assert set(answer["FailedAndUnresolvableNodes"]) == {"n0", "n1", "pcie"}
    assert "GPUs" in answer["FailedAndUnresolvableNodes"]["n0"]


async def test_while_inactive_every_verb_answers_an_error_that_says_why(scheduler: Scheduler) -> None:
    scheduler.leader.world.add_pod(pod("p", 1))
    scheduler.replica.active = False
    assert "b_1" in (await scheduler.filter("p"))["Error"]
    binding = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n0"}
    assert "b_1" in (await scheduler.post("bind", binding)).json()["Error"]
    assert (await scheduler.post("prioritize", scheduler.args("p"))).status_code == 503
    assert (await scheduler.get("/v1alpha1/jobs/default/j")).status_code == 503
    assert 'kompakt_extender_verb_errors_total{verb="prioritize"} 1.0' in (await scheduler.get("/metrics")).text


async def test_health_tells_trouble(scheduler: Scheduler) -> None:
    assert (await scheduler.get("/healthz")).status_code == 200
    scheduler.replica.trouble = "not listed yet: pods"
    ready = await scheduler.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "not listed yet: pods")
    assert (await scheduler.get("/schedulerz")).status_code == 200, "who still reads may hold the Lease"
    scheduler.replica.unfit = "the API server does not answer about pods"
    assert (await scheduler.get("/schedulerz")).status_code == 503


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=40), st.booleans())
def test_scores_keep_the_order_of_ranks_and_use_the_whole_range(ranks: list[tuple[int, ...]], ideal: bool) -> None:
    scores = scores_of(ranks, ideal=ideal)
    for a in scores:
        for b in scores:
            assert not (a > b and scores[a] < scores[b])
    if ranks:
        assert scores[max(ranks)] == (10 if ideal else 9)
        assert len(set(ranks)) == 1 or scores[min(ranks)] == 0
        assert sum(score == scores[max(ranks)] for score in scores.values()) == 1
