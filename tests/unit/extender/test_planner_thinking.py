"""Core thinks about a snapshot in another thread: what changes meanwhile decides whether its answer counts."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_extender.planner.loop import Planner
from tests.support.extender.office import Office, gates, on_nodes
from tests.support.extender.world import node, pod, topology, worker


def handed_out(office: Office) -> list[tuple[str, str]]:
    """Every GPU of every released plan, and of every pod that was bound without one."""
    plans = [office.scheduling(name).get("plan", {}).get("pods", []) for name in office.world.jobs]
    planned = [(seat["node"], uuid) for seats in plans for seat in seats for uuid in seat["gpus"]]
    plain = [one for one in office.world.pods.values() if one["spec"].get("nodeName") and not one["metadata"].get("labels")]
    bound = [(one["spec"]["nodeName"], uuid) for one in plain for uuid in one["metadata"]["annotations"][c.ANN_GPUS].split(",")]
    return planned + bound


def see_after(office: Office, change: Callable[[], Any]) -> Callable[[], None]:
    def happen() -> None:
        change()
        office.see()

    return happen


def take_gpus_of(office: Office, name: str, *gpus: int) -> None:
    notes = {c.ANN_GPUS: ",".join(f"GPU-{name}-{index}" for index in gpus)}
    office.world.add_pod(pod(f"plain-{name}", len(gpus), annotations=notes, nodeName=name))


async def test_a_plan_whose_gpus_were_taken_meanwhile_is_made_again(office: Office) -> None:
    office.world.add_gang("j", 1, 4)
    office.see()
    office.meanwhile.append(see_after(office, lambda: take_gpus_of(office, "n0", 0, 1)))
    await office.plan()
    assert office.world.sent == []
    await office.settle()
    assert office.scheduling("j")["state"] == "Released"
    assert len(handed_out(office)) == len(set(handed_out(office))) == 6


async def test_a_plan_stands_when_other_gpus_of_its_node_are_taken_meanwhile() -> None:
    office = on_nodes(1)
    office.world.add_gang("j", 1, 4)
    office.see()
    office.meanwhile.append(see_after(office, lambda: take_gpus_of(office, "n0", 6, 7)))
    await office.plan()
    assert office.scheduling("j")["plan"]["pods"][0]["gpus"] == [f"GPU-n0-{index}" for index in (0, 1, 2, 3)]


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
    [("nodes", pressed_for_cpu), ("nodes", other_rack), ("nodes", not_ready), ("topologies", other_machine)],
)
async def test_a_plan_on_a_node_that_changed_meanwhile_is_not_written(store: str, changed: Callable[[], dict[str, Any]]) -> None:
    office = on_nodes(1)
    office.world.add_gang("j", 2, 4)
    office.see()
    office.meanwhile.append(see_after(office, lambda: office.world.put(store, "n0", changed())))
    await office.plan()
    assert office.world.sent == []
    assert office.ledger.snapshot().nodes["n0"].taken == 0  # type: ignore[index]


async def test_a_plan_on_a_node_that_went_meanwhile_is_not_written() -> None:
    office = on_nodes(1)
    office.world.add_gang("j", 2, 4)
    office.see()
    office.meanwhile.append(lambda: office.handlers.nodes().remove("n0"))
    await office.plan()
    assert office.world.sent == []


@pytest.mark.parametrize("what", ["pod replaced", "pod deleted", "job suspended", "next attempt", "other wish"])
async def test_a_gang_that_changed_meanwhile_is_not_placed_by_the_old_answer(what: str, office: Office) -> None:
    office.world.add_gang("j", 2, 4)
    office.see()
    first, made = office.world.pods["j-worker-0-a1"], worker("j", 0, 4)

    def change() -> None:
        if what == "pod replaced":
            office.world.delete_pod("j-worker-0-a1")
            made["metadata"]["uid"] = "uid-another"
            office.world.add_pod(made)
        elif what == "pod deleted":
            office.world.delete_pod("j-worker-0-a1")
        elif what == "other wish":
            for one in office.world.pods.values():
                one["metadata"]["annotations"][c.ANN_PATTERN] = "Clique"
                office.world.add_pod(one)
        else:
            job = office.world.jobs["j"]
            job["spec" if what == "job suspended" else "status"] |= (
                {"suspend": True} if what == "job suspended" else {"attempt": 2}
            )
            office.world.put("jobs", "j", job)

    office.meanwhile.append(see_after(office, change))
    await office.plan()
    assert office.world.sent == []
    assert gates(office.world, "j-worker-1-a1") != []
    assert first["metadata"]["uid"] == "uid-j-worker-0-a1"


async def test_a_plan_is_written_with_the_version_the_job_has_by_then(office: Office) -> None:
    office.world.add_gang("j", 2, 4)
    office.see()
    office.meanwhile.append(see_after(office, lambda: office.world.put("jobs", "j", office.world.jobs["j"])))
    await office.plan()
    assert office.scheduling("j")["state"] == "Released"


async def test_never_is_not_said_of_a_cluster_that_grew_meanwhile(office: Office) -> None:
    office.world.add_gang("j", 3, 8)
    office.see()
    office.meanwhile.append(see_after(office, lambda: office.world.add_node("n2")))
    await office.plan()
    assert office.world.sent == []
    await office.settle()
    assert office.scheduling("j")["state"] == "Released"


async def test_the_loop_goes_on_while_core_thinks(monkeypatch: pytest.MonkeyPatch, office: Office) -> None:
    """With the planner's own way of thinking: the loop runs code although core has not answered."""
    thinking, heard = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        thinking.set()
        assert heard.wait(1.5), "the loop was blocked"
        raise RuntimeError("no answer")

    monkeypatch.setattr("kompakt_extender.planner.scheduling_attempt.place_or_wait", slow)
    planner = Planner(office.ledger, office.jobs, None, office.metrics, lambda: office.now, {})  # type: ignore[arg-type]
    office.world.add_gang("j", 1, 1)
    office.see()
    task = asyncio.create_task(planner.run_cycle())
    while not thinking.is_set():
        await asyncio.sleep(0)
    heard.set()
    await task
