"""bind: which set, which write, and what becomes of each outcome."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.topology.machines import machine
from kompakt_extender.node_state import ClaimSource
from tests.support.extender.leader import Leader, may_not_read
from tests.support.extender.made_objects import pod

RING = {c.ANN_PATTERN: "Ring", c.ANN_SENSITIVITY: "High"}


def taken(leader: Leader, node: str = "n0") -> int:
    state = leader.ledger.state(NodeName(node))
    assert state is not None
    return state.taken.bit_count()


async def test_node_and_gpus_land_in_one_write_in_pattern_order(leader: Leader) -> None:
    leader.add_pod(pod("p", 4, annotations=RING))
    assert await leader.bind("p", "n0") == ""
    notes = leader.annotations("p")
    indices = [int(text) for text in notes[c.ANN_GPU_INDICES].split(",")]
    assert notes[c.ANN_GPUS] == ",".join(f"GPU-n0-{i}" for i in indices)
    assert sorted(indices) == [0, 1, 2, 3]
    weights = machine("dgx1-v100").weights
    ring = zip(indices, [*indices[1:], indices[0]], strict=True)
    assert notes[c.ANN_VALUE] == str(min(weights[a][b] for a, b in ring)) == "25000"
    assert [method for method, _ in leader.world.sent] == ["POST"]


def regated(leader: Leader) -> None:
    leader.world.pods["p"]["spec"]["schedulingGates"] = [{"name": "example.com/new"}]


def bound_by_others(leader: Leader) -> None:
    """Our watch has not shown it yet."""
    leader.world.pods["p"]["spec"]["nodeName"] = "n1"
    leader.world.pods["p"]["metadata"]["annotations"][c.ANN_GPUS] = "GPU-n1-0,GPU-n1-1,GPU-n1-2,GPU-n1-3"


def pod_is_deleted(leader: Leader) -> None:
    leader.world.delete_pod("p")


@pytest.mark.parametrize(
    ("before", "outcome", "says", "after", "held"),
    [
        pytest.param(None, "401", "not now", None, (0, 0), id="surely not done: its GPUs are free at once"),
        pytest.param(None, "429", "not now", None, (0, 0), id="too many requests: likewise"),
        pytest.param(regated, "ok", "refused", None, (0, 0), id="refused: likewise"),
        pytest.param(bound_by_others, "ok", "bound to n1", None, (0, 4), id="409: the pod itself says where it is"),
        pytest.param(None, "lost", "not known", pod_is_deleted, (0, 0), id="unknown: till it is gone"),
        pytest.param(None, "late", "not known", lambda leader: leader.wait(100_000), (4, 0), id="unknown: however long it takes"),
    ],
)
async def test_what_a_bind_that_fails_holds(
    before: Callable[[Leader], None] | None,
    outcome: str,
    says: str,
    after: Callable[[Leader], None] | None,
    held: tuple[int, int],
    leader: Leader,
) -> None:
    leader.add_pod(pod("p", 4))
    if before is not None:
        before(leader)
    leader.world.outcomes.append(outcome)
    assert says in await leader.bind("p", "n0")
    if after is not None:
        after(leader)
        for _ in range(10):
            await asyncio.sleep(0)
    assert (taken(leader, "n0"), taken(leader, "n1"), leader.ledger.unknown_binds) == (*held, held[0] // 4)
    leader.binder.stop()


async def test_what_became_of_a_bind_is_read_though_the_lease_was_nobodys_meanwhile(leader: Leader) -> None:
    leader.add_pod(pod("p", 4))
    leader.world.outcomes.append("lost")
    may_not_read(leader, 3)
    assert "not known" in await leader.bind("p", "n0")
    leader.world.delete_pod("p")
    for _ in range(20):
        await asyncio.sleep(0)
    assert (taken(leader, "n0"), leader.ledger.unknown_binds) == (0, 0)


async def test_a_pod_our_watch_has_not_shown_yet_is_read(leader: Leader) -> None:
    leader.world.add_pod(pod("p", 1))
    assert await leader.bind("p", "n0") == ""


async def test_a_gang_pod_whose_gate_somebody_else_removed_is_not_bound(leader: Leader) -> None:
    leader.world.add_gang("j", 2, 2)
    leader.world.pods["j-worker-0-a1"]["spec"]["schedulingGates"] = []
    leader.add_pod(leader.world.pods["j-worker-0-a1"])
    assert await leader.bind("j-worker-0-a1", "n0") != ""
    assert [method for method, _ in leader.world.sent if method == "POST"] == []


async def test_a_second_bind_of_a_bound_pod_is_confirmed_without_a_write(leader: Leader) -> None:
    leader.add_pod(pod("p", 1))
    await leader.bind("p", "n0")
    leader.see()
    sent = len(leader.world.sent)
    assert await leader.bind("p", "n0") == ""
    assert "bound to n0" in await leader.bind("p", "n1")
    assert len(leader.world.sent) == sent


async def test_a_bind_of_unknown_outcome_keeps_its_gpus_until_the_pod_is_seen_bound(leader: Leader) -> None:
    leader.add_pod(pod("p", 4))
    leader.world.outcomes.append("late")
    assert "not known yet" in await leader.bind("p", "n0")
    leader.world.arrive_late()
    for _ in range(10):
        await asyncio.sleep(0)  # it reads the pod by itself; no watch event is needed
    assert leader.ledger.claims_of(leader.world.pods["p"]["metadata"]["uid"], ClaimSource.BIND) == ()
    assert taken(leader) == 4


async def test_a_watch_that_is_behind_takes_no_bound_pod_off_its_node(leader: Leader) -> None:
    """The pod was read by name after its bind; then the watch delivers its creation."""
    leader.world.add_pod(pod("p", 1))
    leader.world.add_pod(pod("q", 1))
    leader.world.outcomes.append("unheard")
    assert "not known yet" in await leader.bind("p", "n0")
    for _ in range(5):
        await asyncio.sleep(0)  # the pod is read meanwhile
    assert leader.ledger.unknown_binds == 0
    leader.see(1)
    assert taken(leader) == 1
    leader.report("n0")
    assert await leader.bind("q", "n0") == ""
    assert leader.annotations("p")[c.ANN_GPUS] != leader.annotations("q")[c.ANN_GPUS]


async def test_a_bind_sent_again_after_an_unknown_outcome_names_the_same_gpus(leader: Leader) -> None:
    leader.world.add_pod(pod("other", 2, annotations={c.ANN_GPUS: "GPU-n0-0,GPU-n0-1"}, nodeName="n0"))
    leader.world.report("n0")
    leader.add_pod(pod("p", 2))
    leader.world.outcomes.append("late")
    await leader.bind("p", "n0")
    claimed = leader.ledger.claims_of(leader.world.pods["p"]["metadata"]["uid"], ClaimSource.BIND)[0].gpus
    leader.world.delete_pod("other")  # a better set may be free now
    leader.report("n0")
    assert await leader.bind("p", "n0") == ""
    assert leader.annotations("p")[c.ANN_GPUS] == ",".join(claimed)
    leader.binder.stop()


async def test_an_answer_that_comes_after_the_pods_end_does_not_bring_it_back(leader: Leader) -> None:
    """The watch's DELETED was handled first; no later event would take the pod out again."""
    leader.add_pod(pod("p", 4))
    assert await leader.bind("p", "n0") == ""
    late = leader.ledger.pods[PodUid("uid-p")]
    leader.ledger.remove_pod(late.uid)
    assert not leader.ledger.set_pod(late)
    assert (late.uid in leader.ledger.pods, taken(leader)) == (False, 0)


async def test_a_pod_replaced_under_its_name_is_not_bound(leader: Leader) -> None:
    old = leader.add_pod(pod("p", 1))
    leader.world.pods["p"] = pod("p", 1, uid="uid-new")
    leader.world.pods["old"] = old  # so that bind is called with the old uid
    assert "replaced" in (await leader.bind_uid("p", "uid-p", "n0"))
    assert taken(leader) == 0


async def test_of_one_size_only_one_bind_is_unreported_at_a_time(leader: Leader) -> None:
    for name in ("a", "b"):
        leader.world.add_pod(pod(name, 2))
    leader.add_pod(pod("c", 3))
    assert await leader.bind("a", "n0") == ""
    leader.see()
    assert "not reported" in await leader.bind("b", "n0")
    assert await leader.bind("c", "n0") == ""
    leader.report("n0")
    assert await leader.bind("b", "n0") == ""


async def test_a_bind_goes_on_as_soon_as_the_plugin_has_reported_the_one_before_it(leader: Leader) -> None:
    leader.binder.plugin_seconds = 60.0
    for name in ("a", "b"):
        leader.add_pod(pod(name, 2))
    assert await leader.bind("a", "n0") == ""
    leader.see()  # a change of the node that reports nothing
    waiting = asyncio.create_task(leader.bind("b", "n0"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    leader.world.report("n0")
    leader.see()
    assert await asyncio.wait_for(waiting, 5) == ""


async def test_binds_of_one_pod_never_overlap_however_many_come(leader: Leader) -> None:
    leader.add_pod(pod("p", 2))
    running, most = 0, 0
    send = leader.world.send

    async def counted(method: str, path: str, **more: Any) -> Any:
        nonlocal running, most
        running += method == "POST"
        most = max(most, running)
        try:
            return await send(method, path, **more)
        finally:
            running -= method == "POST"

    leader.world.send = counted  # type: ignore[method-assign]
    calls = [asyncio.create_task(leader.bind("p", "n0")) for _ in range(2)]
    for _ in range(30):
        await asyncio.sleep(0)
        calls.append(asyncio.create_task(leader.bind("p", "n1")))
    await asyncio.gather(*calls)
    assert most == 1
    assert len(leader.world.holders("n0")) == 1


async def test_a_pod_that_demands_one_numa_node_gets_its_gpus_on_one(leader: Leader) -> None:
    leader.world.add_pod(pod("p", 2, annotations={c.ANN_POLICY: "First", c.ANN_SAME_NUMA: "true"}))
    for index, uid in ((0, "a"), (1, "b"), (2, "d"), (5, "e"), (6, "f"), (7, "g")):
        leader.world.topologies["n0"]["status"]["held"].append({"uuid": f"GPU-n0-{index}", "podUID": uid})
    leader.world.put("topologies", "n0", leader.world.topologies["n0"])
    leader.see()
    assert "NUMA" in await leader.bind("p", "n0")  # left are 3 and 4, one on each
    assert await leader.bind("p", "n1") == ""


@pytest.mark.parametrize(
    ("annotations", "word"),
    [
        ({c.ANN_PATTERN: "Moebius"}, "Moebius"),
        ({c.ANN_POLICY: "Worst"}, "Worst"),
        ({c.ANN_PATTERN: "Custom", c.ANN_EDGES: "[]"}, "is none; write"),
        ({c.ANN_EDGES: "0-1"}, "go together"),
        ({c.ANN_PATTERN: "Custom"}, "go together"),
        ({c.ANN_REQUIRED_LINK: "Rope"}, "NVLink"),
        ({c.ANN_SENSITIVITY: "On"}, "High"),
        ({c.ANN_SAME_NUMA: "yes"}, "true"),
    ],
)
async def test_an_annotation_with_an_unknown_word_is_refused_with_the_right_ones(
    annotations: dict[str, str], word: str, leader: Leader
) -> None:
    leader.add_pod(pod("p", 1, annotations=annotations))
    assert word in await leader.bind("p", "n0")
    assert leader.world.sent == []
