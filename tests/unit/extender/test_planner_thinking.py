"""Core thinks about a snapshot in another thread: what changes meanwhile decides whether its answer counts."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_extender.planner.loop import Planner
from tests.support.extender.leader import Leader, gates, on_nodes
from tests.support.extender.world import node, pod, topology, worker


def handed_out(leader: Leader) -> list[tuple[str, str]]:
    """Every GPU of every released plan, and of every pod that was bound without one."""
    plans = [leader.scheduling(name).get("plan", {}).get("pods", []) for name in leader.world.jobs]
    planned = [(seat["node"], uuid) for seats in plans for seat in seats for uuid in seat["gpus"]]
    plain = [one for one in leader.world.pods.values() if one["spec"].get("nodeName") and not one["metadata"].get("labels")]
    bound = [(one["spec"]["nodeName"], uuid) for one in plain for uuid in one["metadata"]["annotations"][c.ANN_GPUS].split(",")]
    return planned + bound


def see_after(leader: Leader, change: Callable[[], Any]) -> Callable[[], None]:
    def happen() -> None:
        change()
        leader.see()

    return happen


def take_gpus_of(leader: Leader, name: str, *gpus: int) -> None:
    notes = {c.ANN_GPUS: ",".join(f"GPU-{name}-{index}" for index in gpus)}
    leader.world.add_pod(pod(f"plain-{name}", len(gpus), annotations=notes, nodeName=name))


async def test_a_plan_whose_gpus_were_taken_meanwhile_is_made_again(leader: Leader) -> None:
    leader.world.add_gang("j", 1, 4)
    leader.see()
    leader.meanwhile.append(see_after(leader, lambda: take_gpus_of(leader, "n0", 0, 1)))
    await leader.plan()
    assert leader.world.sent == []
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"
    assert len(handed_out(leader)) == len(set(handed_out(leader))) == 6


async def test_a_plan_stands_when_other_gpus_of_its_node_are_taken_meanwhile() -> None:
    leader = on_nodes(1)
    leader.world.add_gang("j", 1, 4)
    leader.see()
    leader.meanwhile.append(see_after(leader, lambda: take_gpus_of(leader, "n0", 6, 7)))
    await leader.plan()
    assert leader.scheduling("j")["plan"]["pods"][0]["gpus"] == [f"GPU-n0-{index}" for index in (0, 1, 2, 3)]


def pressed_for_cpu() -> dict[str, Any]:
    made = node("n0")
    made["status"]["allocatable"]["cpu"] = "1"  # two workers ask for one each
    return made


def other_rack() -> dict[str, Any]:
    made = node("n0")
    made["metadata"]["labels"][c.LABEL_RACK] = "elsewhere"
    return made


def not_ready() -> dict[str, Any]:
    return node("n0", conditions=[{"type": "Ready", "status": "False"}])


def other_machine() -> dict[str, Any]:
    made = topology("n0", "a100-pcie-8-bridge-pairs")
    for gpu in made["spec"]["gpus"]:
        gpu["uuid"] += "-new"
    return made


@pytest.mark.parametrize(
    ("store", "changed"),
    [("nodes", pressed_for_cpu), ("nodes", other_rack), ("nodes", not_ready), ("topologies", other_machine), ("nodes", None)],
    ids=["too few processors", "another rack", "not ready", "other GPUs", "it is gone"],
)
async def test_a_plan_on_a_node_that_changed_meanwhile_is_not_written(
    store: str, changed: Callable[[], dict[str, Any]] | None
) -> None:
    leader = on_nodes(1)
    leader.world.add_gang("j", 2, 4)
    leader.see()
    if changed is None:
        leader.meanwhile.append(lambda: leader.handlers.nodes().remove("n0"))
    else:
        leader.meanwhile.append(see_after(leader, lambda: leader.world.put(store, "n0", changed())))
    await leader.plan()
    assert leader.world.sent == []
    assert [state.taken for state in leader.ledger.snapshot().nodes.values()] == ([] if changed is None else [0])


@pytest.mark.parametrize("what", ["pod replaced", "pod deleted", "job suspended", "next attempt", "other wish"])
async def test_a_gang_that_changed_meanwhile_is_not_placed_by_the_old_answer(what: str, leader: Leader) -> None:
    leader.world.add_gang("j", 2, 4)
    leader.see()
    first, made = leader.world.pods["j-worker-0-a1"], worker("j", 0, 4)

    def change() -> None:
        if what == "pod replaced":
            leader.world.delete_pod("j-worker-0-a1")
            made["metadata"]["uid"] = "uid-another"
            leader.world.add_pod(made)
        elif what == "pod deleted":
            leader.world.delete_pod("j-worker-0-a1")
        elif what == "other wish":
            for one in leader.world.pods.values():
                one["metadata"]["annotations"][c.ANN_PATTERN] = "Clique"
                leader.world.add_pod(one)
        else:
            job = leader.world.jobs["j"]
            job["spec" if what == "job suspended" else "status"] |= (
                {"suspend": True} if what == "job suspended" else {"attempt": 2}
            )
            leader.world.put("jobs", "j", job)

    leader.meanwhile.append(see_after(leader, change))
    await leader.plan()
    assert leader.world.sent == []
    assert gates(leader.world, "j-worker-1-a1") != []
    assert first["metadata"]["uid"] == "uid-j-worker-0-a1"


async def test_a_plan_is_written_with_the_version_the_job_has_by_then(leader: Leader) -> None:
    leader.world.add_gang("j", 2, 4)
    leader.see()
    leader.meanwhile.append(see_after(leader, lambda: leader.world.put("jobs", "j", leader.world.jobs["j"])))
    await leader.plan()
    assert leader.scheduling("j")["state"] == "Released"


async def test_never_is_not_said_of_a_cluster_that_grew_meanwhile(leader: Leader) -> None:
    leader.world.add_gang("j", 3, 8)
    leader.see()
    leader.meanwhile.append(see_after(leader, lambda: leader.world.add_node("n2")))
    await leader.plan()
    assert leader.world.sent == []
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


async def test_the_loop_goes_on_while_core_thinks(monkeypatch: pytest.MonkeyPatch, leader: Leader) -> None:
    """With the planner's own way of thinking: the loop runs code although core has not answered."""
    thinking, heard = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        thinking.set()
        assert heard.wait(1.5), "the loop was blocked"
        raise RuntimeError("no answer")

    monkeypatch.setattr("kompakt_extender.planner.scheduling_attempt.place_or_wait", slow)
    planner = Planner(leader.ledger, leader.jobs, None, leader.metrics, lambda: leader.now, {})  # type: ignore[arg-type]
    leader.world.add_gang("j", 1, 1)
    leader.see()
    task = asyncio.create_task(planner.run_cycle())
    while not thinking.is_set():
        await asyncio.sleep(0)
    heard.set()
    await task
