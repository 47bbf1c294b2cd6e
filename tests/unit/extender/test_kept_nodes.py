"""Nodes whose GPUs are reserved are kept from scale-down, for as long as they are, and no others."""

from typing import Any

import msgspec
import pytest

from kompakt_client.requests import Answer
from kompakt_core.errors import TryLater
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_extender.command_line import parse
from kompakt_extender.kept_nodes import AT_ONCE, KeptNodes
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.objects import NodeObject
from kompakt_extender.project import SCALE_DOWN_DISABLED, node_view, read_node
from tests.support.extender.made_objects import node

AFTER = 60.0


class Cluster:
    """Nodes with annotations, by whom: the planner's own is taken away when it applies without it."""

    def __init__(self, *names: str) -> None:
        self.ledger, self.now, self.sent, self.fails = GpuLedger(), 0.0, list[str](), 0
        self.ours, self.theirs = set[str](), set[str]()
        self.kept_nodes = KeptNodes(self.ledger, self, lambda: True, lambda: self.now, after=AFTER)
        for name in names:
            self._show(name)

    def _show(self, name: str) -> None:
        notes = {SCALE_DOWN_DISABLED: "true"} if name in self.ours | self.theirs else {}
        obj = node(name)
        self.ledger.set_node(
            node_view(msgspec.convert({**obj, "metadata": {**obj["metadata"], "annotations": notes}}, NodeObject))
        )

    async def send(self, method: str, path: str, *, body: Any = None, query: Any = None, content_type: str = "") -> Answer:
        name = path.rsplit("/", 1)[-1]
        assert (method, path, body["metadata"]["uid"]) == ("PATCH", f"/api/v1/nodes/{name}", f"uid-{name}")
        assert (query, content_type) == ({"fieldManager": "kompakt-planner"}, "application/apply-patch+yaml")
        self.sent.append(name)
        if self.fails:
            self.fails -= 1
            raise TryLater("away", 0.0)
        (self.ours.add if body["metadata"].get("annotations") else self.ours.discard)(name)
        self._show(name)
        return Answer(200, b"")

    def reserve(self, *names: str) -> None:
        self.ledger.reserve_gpus("job", {NodeName(name): (GpuUuid(f"GPU-{name}-0"),) for name in names}, 0)

    async def passes(self, seconds: float) -> set[str]:
        """Which nodes are kept, so many seconds later."""
        self.now += seconds
        await self.kept_nodes.run_cycle()
        return self.ours | self.theirs


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("a", "b", "c")


async def test_a_node_is_kept_while_its_gpus_are_reserved(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    assert await cluster.passes(0) == set()
    assert await cluster.passes(AFTER - 1) == set()
    assert await cluster.passes(1) == {"a", "b"}
    assert await cluster.passes(1000) == {"a", "b"}
    cluster.reserve("b", "c")
    assert await cluster.passes(0) == {"b"}
    assert await cluster.passes(AFTER) == {"b", "c"}
    cluster.reserve()
    assert await cluster.passes(0) == set()
    await cluster.passes(1000)
    assert cluster.sent == ["a", "b", "a", "c", "b", "c"], "one write for each change"


async def test_reservations_that_are_soon_over_cost_no_write(cluster: Cluster) -> None:
    for _ in range(5):
        cluster.reserve("a")
        await cluster.passes(AFTER - 1)
        cluster.reserve()
        await cluster.passes(1)
    assert cluster.sent == []


async def test_what_an_administrator_said_stays(cluster: Cluster) -> None:
    """The annotation is there already: it is asked once whether it is ours."""
    cluster.theirs = {"a", "b"}
    for name in cluster.theirs:
        cluster._show(name)
    cluster.reserve("a")
    for _ in range(4):
        assert await cluster.passes(AFTER) == {"a", "b"}
    cluster.reserve()
    for _ in range(4):
        assert await cluster.passes(AFTER) == {"a", "b"}
    assert cluster.sent == ["b", "a"]
    cluster.theirs = {"b"}
    cluster._show("a")
    cluster.reserve("a")
    await cluster.passes(0)
    assert await cluster.passes(AFTER) == {"a", "b"}
    assert cluster.ours == {"a"}
    cluster.reserve()
    assert await cluster.passes(0) == {"b"}


async def test_what_another_process_left_is_given_up(cluster: Cluster) -> None:
    cluster.ours = {"a", "b"}
    for name in cluster.ours:
        cluster._show(name)
    cluster.reserve("b")
    assert await cluster.passes(0) == {"b"}


async def test_what_fails_is_tried_again(cluster: Cluster) -> None:
    cluster.reserve("a")
    await cluster.passes(0)
    cluster.fails = 1
    assert await cluster.passes(AFTER) == set()
    assert await cluster.passes(10) == {"a"}
    cluster.reserve()
    cluster.fails = 1
    assert await cluster.passes(10) == {"a"}
    assert await cluster.passes(10) == set()


async def test_a_node_that_is_gone_is_not_written(cluster: Cluster) -> None:
    cluster.reserve("a")
    await cluster.passes(0)
    cluster.ledger.remove_node(NodeName("a"))
    assert (await cluster.passes(AFTER), cluster.sent) == (set(), [])


async def test_many_at_once_take_several_cycles() -> None:
    names = [f"n{number}" for number in range(AT_ONCE + 8)]
    cluster = Cluster(*names)
    cluster.reserve(*names)
    await cluster.passes(0)
    assert len(await cluster.passes(AFTER)) == AT_ONCE
    assert await cluster.passes(0) == set(names)


@pytest.mark.parametrize(
    ("notes", "marked"),
    [({SCALE_DOWN_DISABLED: "true"}, True), ({SCALE_DOWN_DISABLED: "false"}, True), ({"other": "true"}, False), (None, False)],
)
def test_whatever_the_annotation_says_somebody_has_spoken(notes: dict[str, str] | None, marked: bool) -> None:
    raw = msgspec.json.encode({"metadata": {"name": "a", "uid": "u", "annotations": notes}})
    assert read_node(raw, "kompakt.dev/gpu").marked == marked


def test_by_default_no_node_is_kept() -> None:
    assert parse([]).keep_nodes_after == 0
    assert parse(["--keep-nodes-after=60"]).keep_nodes_after == 60
    with pytest.raises(SystemExit):
        parse(["--keep-nodes-after=soon"])
