"""Which gangs core is asked about again: only those whose answer could be another one."""

import pytest

from kompakt_core.policy import place_or_wait as core
from kompakt_extender.planner import decision, nomination
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.made_objects import pod
from tests.support.extender.scenario import played


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that core is asked about, by uid."""
    found: list[str] = []

    def place_or_wait(snapshot, gang, *more):  # type: ignore[no-untyped-def]
        found.append(gang.job_uid)
        return core.place_or_wait(snapshot, gang, *more)

    monkeypatch.setattr(decision, "place_or_wait", place_or_wait)
    return found


async def crowded() -> Leader:
    """Two nodes of 8 GPUs, half of them taken; one gang waits for room, another one is too large for the cluster."""
    leader = on_nodes(2)
    await leader.place("runs", workers=1, gpus=8)
    await leader.bind("runs-worker-0-a1", leader.annotations("runs-worker-0-a1")["kompakt.dev/planned-node"])
    leader.world.add_gang("waits", 2, 8)
    leader.world.add_gang("large", 3, 8)
    await leader.settle()
    assert leader.scheduling("large")["reason"] == "NeverFits"
    assert leader.scheduling("waits")["reason"] == "Waiting"
    return leader


async def test_whose_gpus_are_taken_is_nothing_to_a_gang_that_never_fits(asked: list[str]) -> None:
    leader = await crowded()
    asked.clear()
    await leader.place("small", workers=1, gpus=1)
    leader.world.finish_pod("runs-worker-0-a1")
    await leader.settle()
    assert "uid-large" not in asked


async def test_a_gang_that_never_fits_is_asked_about_when_a_node_comes(asked: list[str]) -> None:
    leader = await crowded()
    asked.clear()
    leader.world.add_node("n2")
    leader.world.finish_pod("runs-worker-0-a1")
    await leader.settle()
    assert leader.scheduling("large")["state"] == "Released"


async def test_a_gang_that_never_fits_is_asked_about_when_a_nodes_labels_change(asked: list[str]) -> None:
    leader = await crowded()
    asked.clear()
    leader.world.nodes["n0"]["metadata"]["labels"]["pool"] = "a"
    leader.world.put("nodes", "n0", leader.world.nodes["n0"])
    await leader.settle()
    assert "uid-large" in asked


async def test_nothing_is_asked_while_nothing_changes(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    leader = await crowded()
    built: list[str] = []
    monkeypatch.setattr(nomination, "gang_of", lambda job, *_: built.append(job.uid))
    asked.clear()
    await leader.plan()
    assert asked == built == []


async def test_what_others_take_is_nothing_to_a_gang_that_waits_for_room(asked: list[str]) -> None:
    leader = await crowded()
    asked.clear()
    await leader.place("small", workers=1, gpus=1)
    assert leader.scheduling("small")["state"] == "Released"
    await leader.bind("small-worker-0-a1", leader.annotations("small-worker-0-a1")["kompakt.dev/planned-node"])
    leader.world.add_pod(pod("plain", 1))
    await leader.settle()
    assert set(asked) == {"uid-small"}


@pytest.mark.parametrize("how", ["ends", "fails"])
async def test_what_others_leave_is_everything_to_it(asked: list[str], how: str) -> None:
    leader = await crowded()
    asked.clear()
    if how == "ends":
        leader.world.finish_pod("runs-worker-0-a1")
    else:
        leader.world.delete_pod("runs-worker-0-a1")
    await leader.settle()
    assert leader.scheduling("waits")["state"] == "Released"


async def test_room_that_is_too_small_is_nothing_to_it(asked: list[str]) -> None:
    """Two nodes of 8 GPUs would hold it; 15 free GPUs do not."""
    leader = await crowded()
    leader.add_pod(pod("one", 1))
    runs_on = leader.annotations("runs-worker-0-a1")["kompakt.dev/planned-node"]
    assert await leader.bind("one", "n1" if runs_on == "n0" else "n0") == ""
    asked.clear()
    leader.world.finish_pod("runs-worker-0-a1")
    await leader.settle()
    assert "uid-waits" not in asked
    leader.world.finish_pod("one")
    await leader.settle()
    assert leader.scheduling("waits")["state"] == "Released"


async def test_a_gang_is_asked_about_once_it_was_overtaken_too_often(asked: list[str]) -> None:
    """GPUs are reserved for it then, and nothing else has changed for it."""
    leader = await played("n0 n1 with fixed 1\n 2 pods on n0; waits comes 1x8 Fixed; more comes 2x8 Fixed")
    assert leader.scheduling("more")["state"] == "Waiting"
    asked.clear()
    leader.world.add_gang("small", 1, 1, namespace="others")
    await leader.settle()
    assert leader.scheduling("small")["state"] == "Released"
    assert leader.scheduling("more")["state"] == "Reserved"
