"""bind: which set, which write, and what becomes of each outcome."""

import asyncio
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.topology.machines import machine
from kompakt_extender.ledger import ClaimSource
from tests.support.extender.office import Office
from tests.support.extender.world import pod

RING = {c.ANN_PATTERN: "Ring", c.ANN_SENSITIVITY: "High"}


def held(office: Office, node: str = "n0") -> int:
    state = office.ledger.state(NodeName(node))
    assert state is not None
    return state.taken.bit_count()


async def test_node_and_gpus_land_in_one_write_in_pattern_order(office: Office) -> None:
    office.world.add_pod(pod("p", 4, annotations=RING))
    office.see()
    assert await office.bind("p", "n0") == ""
    notes = office.annotations("p")
    indices = [int(text) for text in notes[c.ANN_GPU_INDICES].split(",")]
    assert notes[c.ANN_GPUS] == ",".join(f"GPU-n0-{i}" for i in indices)
    assert sorted(indices) == [0, 1, 2, 3]
    weights = machine("dgx1-v100").weights
    ring = zip(indices, [*indices[1:], indices[0]], strict=True)
    assert notes[c.ANN_VALUE] == str(min(weights[a][b] for a, b in ring)) == "25000"
    assert [method for method, _ in office.world.sent] == ["POST"]


async def test_a_second_bind_of_a_bound_pod_is_confirmed_without_a_write(office: Office) -> None:
    office.world.add_pod(pod("p", 1))
    office.see()
    await office.bind("p", "n0")
    office.see()
    sent = len(office.world.sent)
    assert await office.bind("p", "n0") == ""
    assert "bound to n0" in await office.bind("p", "n1")
    assert len(office.world.sent) == sent


async def test_a_pod_our_watch_has_not_shown_yet_is_read(office: Office) -> None:
    office.world.add_pod(pod("p", 1))
    assert await office.bind("p", "n0") == ""


async def test_a_bind_of_unknown_outcome_keeps_its_gpus_until_the_pod_is_seen_bound(office: Office) -> None:
    office.world.add_pod(pod("p", 4))
    office.see()
    office.world.outcomes.append("late")
    assert "not known yet" in await office.bind("p", "n0")
    office.wait(100_000)
    assert held(office) == 4
    office.world.arrive_late()
    for _ in range(10):
        await asyncio.sleep(0)  # it reads the pod by itself; no watch event is needed
    assert office.ledger.claims_of(office.world.pods["p"]["metadata"]["uid"], ClaimSource.BIND) == ()
    assert held(office) == 4


async def test_a_watch_that_is_behind_takes_no_bound_pod_off_its_node(office: Office) -> None:
    """The pod was read by name after its bind; then the watch delivers its creation."""
    office.world.add_pod(pod("p", 1))
    office.world.add_pod(pod("q", 1))
    office.world.outcomes.append("unheard")
    assert "not known yet" in await office.bind("p", "n0")
    for _ in range(5):
        await asyncio.sleep(0)  # the pod is read meanwhile
    assert office.ledger.unknown_binds == 0
    office.see(1)
    assert held(office) == 1
    office.world.report("n0")
    office.see()
    assert await office.bind("q", "n0") == ""
    assert office.annotations("p")[c.ANN_GPUS] != office.annotations("q")[c.ANN_GPUS]


async def test_a_bind_sent_again_after_an_unknown_outcome_names_the_same_gpus(office: Office) -> None:
    office.world.add_pod(pod("other", 2, annotations={c.ANN_GPUS: "GPU-n0-0,GPU-n0-1"}, nodeName="n0"))
    office.world.report("n0")
    office.world.add_pod(pod("p", 2))
    office.see()
    office.world.outcomes.append("late")
    await office.bind("p", "n0")
    claimed = office.ledger.claims_of(office.world.pods["p"]["metadata"]["uid"], ClaimSource.BIND)[0].gpus
    office.world.delete_pod("other")  # a better set may be free now
    office.world.report("n0")
    office.see()
    assert await office.bind("p", "n0") == ""
    assert office.annotations("p")[c.ANN_GPUS] == ",".join(claimed)
    office.binder.stop()


async def test_a_bind_that_never_arrived_is_given_up_when_the_pod_is_gone(office: Office) -> None:
    office.world.add_pod(pod("p", 4))
    office.see()
    office.world.outcomes.append("lost")
    await office.bind("p", "n0")
    office.world.delete_pod("p")
    for _ in range(10):
        await asyncio.sleep(0)
    assert held(office) == 0


async def test_a_refused_bind_gives_its_gpus_back(office: Office) -> None:
    office.world.add_pod(pod("p", 4))
    office.see()
    office.world.pods["p"]["spec"]["schedulingGates"] = [{"name": "example.com/new"}]
    assert "refused" in await office.bind("p", "n0")
    assert held(office) == 0


@pytest.mark.parametrize("outcome", ["401", "429"])
async def test_a_bind_that_was_surely_not_done_gives_its_gpus_back_at_once(office: Office, outcome: str) -> None:
    office.world.add_pod(pod("p", 4))
    office.see()
    office.world.outcomes.append(outcome)
    assert await office.bind("p", "n0") != ""
    assert (held(office), office.ledger.unknown_binds) == (0, 0)


async def test_an_answer_that_comes_after_the_pods_end_does_not_bring_it_back(office: Office) -> None:
    """The watch's DELETED was handled first; no later event would take the pod out again."""
    office.world.add_pod(pod("p", 4))
    office.see()
    assert await office.bind("p", "n0") == ""
    late = office.ledger.pods[PodUid("uid-p")]
    office.ledger.remove_pod(late.uid)
    assert not office.ledger.set_pod(late)
    assert (late.uid in office.ledger.pods, held(office)) == (False, 0)


async def test_a_409_is_resolved_by_the_pod_itself(office: Office) -> None:
    office.world.add_pod(pod("p", 4))
    office.see()
    bound = office.world.pods["p"]
    bound["spec"]["nodeName"] = "n1"  # somebody bound it; our watch has not told yet
    bound["metadata"]["annotations"][c.ANN_GPUS] = "GPU-n1-0,GPU-n1-1,GPU-n1-2,GPU-n1-3"
    assert "bound to n1" in await office.bind("p", "n0")
    assert (held(office, "n0"), held(office, "n1")) == (0, 4)


async def test_a_pod_replaced_under_its_name_is_not_bound(office: Office) -> None:
    old = office.world.add_pod(pod("p", 1))
    office.see()
    office.world.pods["p"] = pod("p", 1, uid="uid-new")
    office.world.pods["old"] = old  # so that bind is called with the old uid
    assert "replaced" in (await office.bind_uid("p", "uid-p", "n0"))
    assert held(office) == 0


async def test_of_one_size_only_one_bind_is_unreported_at_a_time(office: Office) -> None:
    for name in ("a", "b"):
        office.world.add_pod(pod(name, 2))
    office.world.add_pod(pod("c", 3))
    office.see()
    assert await office.bind("a", "n0") == ""
    office.see()
    assert "not reported" in await office.bind("b", "n0")
    assert await office.bind("c", "n0") == ""
    office.world.report("n0")
    office.see()
    assert await office.bind("b", "n0") == ""


async def test_simultaneous_binds_of_one_pod_write_once(office: Office) -> None:
    office.world.add_pod(pod("p", 2))
    office.see()
    answers = await asyncio.gather(office.bind("p", "n0"), office.bind("p", "n0"))
    office.see()
    posts = [path for method, path in office.world.sent if method == "POST"]
    assert answers[0] == ""
    assert len(posts) <= 2
    assert len(office.world.holders("n0")) == 1


async def test_binds_of_one_pod_never_overlap_however_many_come(office: Office) -> None:
    office.world.add_pod(pod("p", 2))
    office.see()
    running, most = 0, 0
    send = office.world.send

    async def counted(method: str, path: str, **more: Any) -> Any:
        nonlocal running, most
        running += method == "POST"
        most = max(most, running)
        try:
            return await send(method, path, **more)
        finally:
            running -= method == "POST"

    office.world.send = counted  # type: ignore[method-assign]
    calls = [asyncio.create_task(office.bind("p", "n0")) for _ in range(2)]
    for _ in range(30):
        await asyncio.sleep(0)
        calls.append(asyncio.create_task(office.bind("p", "n1")))
    await asyncio.gather(*calls)
    assert most == 1


async def test_a_pod_that_demands_one_numa_node_gets_its_gpus_on_one(office: Office) -> None:
    office.world.add_pod(pod("p", 2, annotations={c.ANN_POLICY: "First", c.ANN_SAME_NUMA: "true"}))
    for index, uid in ((0, "a"), (1, "b"), (2, "d"), (5, "e"), (6, "f"), (7, "g")):
        office.world.topologies["n0"]["status"]["held"].append({"uuid": f"GPU-n0-{index}", "podUID": uid})
    office.world.put("topologies", "n0", office.world.topologies["n0"])
    office.see()
    assert "NUMA" in await office.bind("p", "n0")  # left are 3 and 4, one on each
    assert await office.bind("p", "n1") == ""


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
    annotations: dict[str, str], word: str, office: Office
) -> None:
    office.world.add_pod(pod("p", 1, annotations=annotations))
    office.see()
    assert word in await office.bind("p", "n0")
    assert office.world.sent == []


async def test_a_gang_pod_whose_gate_somebody_else_removed_is_not_bound(office: Office) -> None:
    office.world.add_gang("j", 2, 2)
    office.world.pods["j-worker-0-a1"]["spec"]["schedulingGates"] = []
    office.world.add_pod(office.world.pods["j-worker-0-a1"])
    office.see()
    assert await office.bind("j-worker-0-a1", "n0") != ""
    assert [method for method, _ in office.world.sent if method == "POST"] == []
