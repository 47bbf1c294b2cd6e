"""Which gangs core is asked about again: only those whose answer could be another one."""

import pytest

from kompakt_core.policy import place_or_wait as core
from kompakt_extender.planner import decision, nomination
from tests.support.extender.leader import Leader, on_nodes


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
    assert set(asked) == {"uid-small", "uid-waits"}
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
