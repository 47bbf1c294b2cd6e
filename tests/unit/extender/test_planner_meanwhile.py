"""Core plans a snapshot in another thread: what changes meanwhile decides whether its result counts."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_extender.node_state import ClaimSource
from kompakt_extender.planner.loop import Planner
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.made_objects import node, pod, topology, worker
from tests.support.extender.world import World


def take_gpus(world: World, *gpus: int) -> None:
    notes = {c.ANN_GPUS: ",".join(f"GPU-n0-{index}" for index in gpus)}
    world.add_pod(pod("plain", len(gpus), annotations=notes, nodeName="n0"))


def pressed_for_cpu(world: World) -> None:
    made = node("n0")
    made["status"]["allocatable"]["cpu"] = "1"  # two workers ask for one each
    world.put("nodes", "n0", made)


def other_rack(world: World) -> None:
    made = node("n0")
    made["metadata"]["labels"][c.LABEL_RACK] = "elsewhere"
    world.put("nodes", "n0", made)


def other_gpus(world: World) -> None:
    made = topology("n0", "a100-pcie-8-bridge-pairs")
    for gpu in made["spec"]["gpus"]:
        gpu["uuid"] += "-new"
    world.put("topologies", "n0", made)


def pod_replaced(world: World) -> None:
    world.delete_pod("j-worker-0-a1")
    made = worker("j", 0, 4)
    made["metadata"]["uid"] = "uid-another"
    world.add_pod(made)


def other_pattern(world: World) -> None:
    for one in world.pods.values():
        one["metadata"]["annotations"][c.ANN_PATTERN] = "Clique"
        world.add_pod(one)


def job_changes(world: World, part: str = "metadata", **fields: Any) -> None:
    world.jobs["j"][part] |= fields
    world.put("jobs", "j", world.jobs["j"])


async def planned(leader: Leader, change: Callable[[World], object], workers: int = 2, gpus: int = 4) -> None:
    """One cycle for a gang of this size; while core plans it the world changes."""

    def happens() -> None:
        change(leader.world)
        leader.see()

    leader.world.add_gang("j", workers, gpus)
    leader.see()
    leader.meanwhile.append(happens)
    await leader.plan()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: take_gpus(world, 0, 1), id="GPUs of the plan are taken"),
        pytest.param(pressed_for_cpu, id="the node has too few processors"),
        pytest.param(other_rack, id="it is in another rack"),
        pytest.param(lambda world: world.turn_ready("n0"), id="it is not ready"),
        pytest.param(other_gpus, id="it has other GPUs"),
        pytest.param(lambda world: world.remove_node("n0"), id="it is gone"),
        pytest.param(pod_replaced, id="a pod is replaced"),
        pytest.param(lambda world: world.delete_pod("j-worker-0-a1"), id="a pod is deleted"),
        pytest.param(other_pattern, id="its pods ask for another pattern"),
        pytest.param(lambda world: job_changes(world, "spec", suspend=True), id="the job is suspended"),
        pytest.param(lambda world: job_changes(world, "status", attempt=2), id="the next attempt begins"),
    ],
)
async def test_a_plan_that_no_longer_holds_is_not_written(change: Callable[[World], object]) -> None:
    leader = on_nodes(1)
    await planned(leader, change)
    assert leader.world.sent == []
    assert not any(leader.ledger.claims_of(uid, ClaimSource.PLAN) for uid in leader.ledger.pods)


async def test_a_plan_whose_gpus_were_taken_is_made_again(leader: Leader) -> None:
    await planned(leader, lambda world: take_gpus(world, 0, 1), workers=1)
    assert leader.world.sent == []
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"
    assert sum(state.taken.bit_count() for state in leader.ledger.snapshot().nodes.values()) == 6, "4 and 2, none twice"


async def test_a_plan_stands_when_other_gpus_of_its_node_are_taken() -> None:
    leader = on_nodes(1)
    await planned(leader, lambda world: take_gpus(world, 6, 7), workers=1)
    assert leader.seats("j")[0].gpus == tuple(f"GPU-n0-{index}" for index in (0, 1, 2, 3))


async def test_a_plan_is_written_with_the_version_the_job_has_by_then(leader: Leader) -> None:
    await planned(leader, job_changes)
    assert leader.scheduling("j")["state"] == "Released"


async def test_never_is_not_said_of_a_cluster_that_grew(leader: Leader) -> None:
    await planned(leader, lambda world: world.add_node("n2"), workers=3, gpus=8)
    assert leader.world.sent == []
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


async def test_the_loop_goes_on_while_core_plans(monkeypatch: pytest.MonkeyPatch, leader: Leader) -> None:
    """With the planner's own thread: the loop runs code although core has not answered."""
    planning, heard = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        planning.set()
        assert heard.wait(1.5), "the loop was blocked"
        raise RuntimeError("no answer")

    monkeypatch.setattr("kompakt_extender.planner.decision.place_or_wait", slow)
    planner = Planner(leader.ledger, leader.jobs, None, leader.metrics, lambda: leader.now, {})  # type: ignore[arg-type]
    leader.world.add_gang("j", 1, 1)
    leader.see()
    task = asyncio.create_task(planner.run_cycle())
    while not planning.is_set():
        await asyncio.sleep(0)
    heard.set()
    await task
