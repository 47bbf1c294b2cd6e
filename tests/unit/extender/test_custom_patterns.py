"""Custom edges are weighed in another process, for as long as they may take: the verbs answer with what is known by then."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import GpuMask, NodeName
from kompakt_core.patterns.edges import parse_edges
from kompakt_core.patterns.embedding import EdgeTable
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.model import GpuRequest, NodeState
from kompakt_core.topology.machines import machine
from kompakt_extender.custom_patterns import NAMESPACE_SECONDS, CustomPatterns
from kompakt_extender.decide import Request
from kompakt_extender.deciding.process import DecidingProcess, ProcessDied
from kompakt_extender.deciding.time_budget import MOST_KNOWN, TimeBudget
from kompakt_extender.deciding.weighing import WeighedNodes, WeighingTask, weigh_nodes
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.made_objects import pod
from tests.support.extender.scheduler import Replica, Scheduler, occupy

pytestmark = pytest.mark.anyio
CHAIN = "0-1:3,1-2,2-3:5"
NODES = ("n0", "n1", "n2")


class Played:
    """The weighing process: it weighs at most `most` nodes in a call, once it is let go, and says that it took `cost` seconds."""

    def __init__(self) -> None:
        self.most = 1000
        self.cost = 0.0
        self.dies = False
        self.tasks: list[WeighingTask] = []
        self.go = asyncio.Event()
        self.go.set()
        self.weighs = False
        self.ready = True

    async def call(self, argument: Callable[[bool], Any], seconds: float) -> WeighedNodes:
        task: WeighingTask = argument(False)
        self.tasks.append(task)
        await self.go.wait()
        if self.dies:
            raise ProcessDied("it died", 1.0)
        self.weighs = True
        try:
            return weigh_nodes(task._replace(nodes=task.nodes[: self.most], seconds=60.0))._replace(seconds=self.cost)
        finally:
            self.weighs = False


class Beside:
    """kube-scheduler beside an extender whose custom edges another process weighs."""

    def __init__(self, nodes: int = 3) -> None:
        self.process, self.now = Played(), 0.0
        self.weights = CustomPatterns(self.process, lambda: self.now + asyncio.get_running_loop().time())
        self.leader = on_nodes(nodes, weights=self.weights)
        self.scheduler = Scheduler(Replica(self.leader))

    def pod(self, name: str, edges: str = CHAIN, gpus: int = 4, namespace: str = "default", **notes: str) -> None:
        made = pod(name, gpus, annotations={c.ANN_PATTERN: "Custom", c.ANN_EDGES: edges, **notes})
        made["metadata"]["namespace"] = namespace
        self.leader.add_pod(made)

    async def filter(self, name: str) -> tuple[list[str], set[str]]:
        answer = await self.scheduler.filter(name, *NODES)
        return answer["NodeNames"], set((answer["FailedNodes"] or {}).values())


@pytest.fixture
async def beside(monkeypatch: pytest.MonkeyPatch) -> Beside:
    """No edges are looked at but in the played process."""
    made = Beside()
    solve = EdgeTable._solve

    def only_there(table: EdgeTable, *args: Any) -> None:
        assert made.process.weighs, "edges are weighed where the verbs are served"
        solve(table, *args)

    monkeypatch.setattr(EdgeTable, "_solve", only_there)
    return made


async def turns() -> None:
    """What runs in the background comes to its end."""
    for _ in range(20):
        await asyncio.sleep(0)


def value_of(leader: Leader, name: str) -> int:
    return int(leader.world.pods[name]["metadata"]["annotations"][c.ANN_VALUE])


async def test_a_pod_is_placed_bound_and_noted_by_edges_that_were_weighed_elsewhere(beside):
    occupy(beside.leader, "other", "n1", 0, 1)
    beside.pod("p")
    assert (await beside.filter("p"))[0] == list(NODES)
    scores = await beside.scheduler.scores("p", *NODES)
    assert await beside.leader.bind("p", max(scores, key=scores.__getitem__)) == ""
    alone = on_nodes(3)
    occupy(alone, "other", "n1", 0, 1)
    alone.add_pod(pod("p", 4, annotations={c.ANN_PATTERN: "Custom", c.ANN_EDGES: CHAIN}))
    by_itself = Scheduler(Replica(alone))
    assert await by_itself.scores("p", *NODES) == scores
    await alone.bind("p", max(scores, key=scores.__getitem__))
    for annotation in (c.ANN_GPUS, c.ANN_VALUE):
        both = [one.world.pods["p"]["metadata"]["annotations"][annotation] for one in (alone, beside.leader)]
        assert both[0] == both[1]


async def test_nodes_that_are_equal_are_weighed_once_and_never_again(beside):
    occupy(beside.leader, "full", "n2", *range(6))
    for name in ("p", "q"):
        beside.pod(name)
        assert (await beside.filter(name))[0] == ["n0", "n1"]
    weighed = [state.name for task in beside.process.tasks for state, _ in task.nodes]
    assert len(weighed) == 2, "one of two equal nodes, none without room, and an empty machine for what would be ideal"


async def test_past_its_time_a_pod_is_placed_by_pattern_none(beside):
    beside.process.go.clear()
    beside.pod("p", edges="0-1:7,2-3")
    assert await beside.filter("p") == (list(NODES), set())
    assert await beside.leader.bind("p", "n0") == ""
    none = on_nodes(3)
    none.add_pod(pod("p", 4))
    await none.bind("p", "n0")
    assert value_of(beside.leader, "p") == value_of(none, "p")


async def test_who_asked_is_told_that_a_pod_was_placed_without_its_pattern(beside):
    beside.process.go.clear()
    beside.pod("p", edges="0-1:7,2-3")
    await beside.filter("p")
    waiting = beside.leader.queries.pod("default", "p")()
    assert (waiting.fits, waiting.ideal) == (3, None), "its edges are not weighed for this answer either"
    assert await beside.leader.bind("p", "n0") == ""
    await turns()
    (event,) = beside.leader.world.events
    assert (event["type"], event["reason"], event["involvedObject"]["name"]) == ("Warning", "PlacedWithoutPattern", "p")
    assert event["message"].startswith(
        "placed by pattern None: comparing its custom edges with the nodes' links takes longer than"
    )
    beside.leader.see()
    explained = beside.leader.queries.pod("default", "p")()
    assert explained.decision is not None
    assert explained.decision.note == event["message"]


async def test_who_got_what_was_asked_for_is_told_nothing(beside):
    beside.pod("p")
    await beside.filter("p")
    assert await beside.leader.bind("p", "n0") == ""
    await turns()
    assert beside.leader.world.events == []
    beside.leader.see()
    assert beside.leader.queries.pod("default", "p")().decision.note == ""


async def test_what_was_begun_goes_on_and_the_pod_is_placed_by_its_edges_when_it_is_tried_again(beside):
    beside.process.go.clear()
    beside.pod("p")
    await beside.filter("p")
    beside.process.go.set()
    await turns()
    asked = [task for task in beside.process.tasks if task.nodes[0][0].name]
    await beside.filter("p")
    assert [task for task in beside.process.tasks if task.nodes[0][0].name] == asked
    assert await beside.leader.bind("p", "n0") == ""
    alone = on_nodes(3)
    alone.add_pod(pod("p", 4, annotations={c.ANN_PATTERN: "Custom", c.ANN_EDGES: CHAIN}))
    await alone.bind("p", "n0")
    assert value_of(beside.leader, "p") == value_of(alone, "p")


async def test_a_pod_goes_to_a_node_that_was_weighed_in_time(beside):
    occupy(beside.leader, "a", "n1", 0)
    occupy(beside.leader, "b", "n2", 0, 1)
    beside.pod("p")
    beside.process.most = 1
    beside.process.cost = NAMESPACE_SECONDS + 1
    fit, why = await beside.filter("p")
    assert len(fit) == 1
    assert why == {"node(s) were not compared in time by the pod's custom edges"}
    assert await beside.leader.bind("p", fit[0]) == ""


async def test_a_namespace_that_used_up_its_time_waits_for_nothing_and_others_are_weighed(beside):
    beside.process.cost = NAMESPACE_SECONDS + 1
    beside.pod("p", edges="0-1:11")
    await beside.filter("p")
    asked = len(beside.process.tasks)
    beside.pod("q", edges="0-1:12")
    assert await beside.filter("q") == (list(NODES), set())
    assert len(beside.process.tasks) == asked
    edges = GpuRequest(Pattern.CUSTOM, edges=parse_edges("0-1:12"))
    assert beside.leader.answers.boards.peek(Request(4, edges)) is None, "no board for every set of edges either"
    beside.pod("other", edges="0-1:13", namespace="others")
    await beside.filter("other")
    assert len(beside.process.tasks) > asked
    asked, beside.now = len(beside.process.tasks), 60.0
    await beside.filter("q")
    assert len(beside.process.tasks) > asked, "its time comes back"


async def test_of_one_namespace_one_call_is_under_way(beside):
    beside.process.go.clear()
    for number in range(5):
        beside.pod(f"p{number}", edges=f"0-1:{20 + number}")
    await asyncio.gather(*(beside.filter(f"p{number}") for number in range(5)))
    assert len(beside.process.tasks) == 1


async def test_a_process_that_dies_costs_the_pod_its_pattern_and_nobody_an_answer(beside):
    beside.process.dies = True
    beside.pod("p")
    assert await beside.filter("p") == (list(NODES), set())
    assert await beside.leader.bind("p", "n0") == ""


@pytest.mark.parametrize("workers", [1, 2])
async def test_planned_gpus_stay_planned_whatever_their_edges_are_worth(beside, workers):
    await beside.leader.place("g", workers, 4)
    beside.leader.see()
    name = "g-worker-0-a1"
    planned = beside.leader.world.pods[name]["metadata"]["annotations"][c.ANN_PLANNED_GPUS]
    beside.leader.world.pods[name]["metadata"]["annotations"] |= {c.ANN_PATTERN: "Custom", c.ANN_EDGES: CHAIN}
    beside.leader.add_pod(beside.leader.world.pods[name])
    beside.process.dies = True
    node = (await beside.filter(name))[0][0]
    assert await beside.leader.bind(name, node) == ""
    assert beside.leader.world.pods[name]["metadata"]["annotations"][c.ANN_GPUS] == planned


async def test_random_clusters_get_the_answers_that_weighing_at_once_gives():
    rng = random.Random(7)
    beside, alone = Beside(), on_nodes(3)
    at_once = Scheduler(Replica(alone))
    for number in range(40):
        edges = ",".join(f"{a}-{a + 1}:{rng.randint(1, 3)}" for a in range(rng.randint(1, 3)))
        name, notes = f"p{number}", {c.ANN_PATTERN: "Custom", c.ANN_EDGES: edges}
        for leader in (beside.leader, alone):
            leader.add_pod(pod(name, 4, annotations=notes))
        ours, theirs = await beside.scheduler.filter(name, *NODES), await at_once.filter(name, *NODES)
        assert ours == theirs
        scores = await at_once.scores(name, *NODES)
        assert await beside.scheduler.scores(name, *NODES) == scores
        best = max(theirs["NodeNames"] or NODES, key=scores.__getitem__)
        assert await beside.leader.bind(name, best) == await alone.bind(name, best)
        if number % 3:
            for leader in (beside.leader, alone):
                leader.world.delete_pod(name)
                leader.see()


async def test_edges_are_weighed_by_a_true_process_for_the_first_pod_that_has_any_too():
    process = DecidingProcess("kompakt_extender.deciding.weighing:weigher")
    leader = on_nodes(3, weights=CustomPatterns(process))
    scheduler = Scheduler(Replica(leader))
    try:
        leader.add_pod(pod("p", 4, annotations={c.ANN_PATTERN: "Custom", c.ANN_EDGES: CHAIN}))
        await scheduler.filter("p", *NODES)
        assert await leader.bind("p", "n0") == ""
        alone = on_nodes(3)
        alone.add_pod(pod("p", 4, annotations={c.ANN_PATTERN: "Custom", c.ANN_EDGES: CHAIN}))
        await alone.bind("p", "n0")
        assert value_of(leader, "p") == value_of(alone, "p")
    finally:
        await process.stop()


def test_a_call_ends_when_its_time_is_over_but_weighs_one_node_at_least():
    graph = machine("dgx1-v100")
    nodes = tuple((NodeState(NodeName(f"n{taken}"), graph, taken=GpuMask(taken)), False) for taken in range(4))
    request = Request(4, GpuRequest(Pattern.CUSTOM, edges=parse_edges(CHAIN)))
    task = WeighingTask(request, nodes, 0.0)
    assert len(weigh_nodes(task).weights) == 1
    assert len(weigh_nodes(task._replace(seconds=60.0)).weights) == len(task.nodes)


def test_time_comes_back_up_to_what_there_was_and_debts_are_paid():
    now = 0.0
    budget = TimeBudget(5.0, 0.1, lambda: now)
    budget.spend("a", 7.0)
    assert budget.left("a") == pytest.approx(-2.0)
    assert budget.left("b") == 5.0
    now = 30.0
    assert budget.left("a") == pytest.approx(1.0)
    now = 1000.0
    assert budget.left("a") == 5.0


def test_namespaces_without_number_take_no_memory_without_end():
    budget = TimeBudget(5.0, 0.1, lambda: 0.0)
    for number in range(MOST_KNOWN + 10):
        budget.spend(f"n{number}", 1.0)
    assert len(budget._left) == MOST_KNOWN
    assert budget.left(f"n{MOST_KNOWN + 9}") == 4.0
