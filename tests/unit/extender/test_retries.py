"""Rejected pods are annotated once they would be answered otherwise, so that kube-scheduler tries them again."""

import asyncio
import json
from typing import Any

import pytest

from kompakt_client.requests import Answer
from kompakt_core import contract as c
from kompakt_core.errors import TryLater
from kompakt_extender.retries import AT_ONCE, MOST, PATIENCE_SECONDS, PAUSE_SECONDS, Retries
from kompakt_extender.wire import decode_args
from kompakt_extender.writer import NotSent
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.scheduler import occupy


class Asked:
    """kube-scheduler's questions, the clock, and the API server's side of what is written."""

    def __init__(self, leader: Leader) -> None:
        self.leader, self.now = leader, 100.0
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.outcome: int | Exception = 200
        self.retries = Retries(leader.answers, leader.ledger, self, lambda: leader.now, lambda: self.now)

    async def send(self, method: str, path: str, *, body: Any = None, query: Any = None, content_type: str = "") -> Answer:
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        self.patched.append((path, body["metadata"]))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return Answer(self.outcome, b"{}")

    def filter(self, made: dict[str, Any]) -> list[str]:
        args = decode_args(json.dumps({"Pod": made, "Nodes": None, "NodeNames": ["n0", "n1"]}).encode())
        verdict = self.leader.answers.filter(args)
        self.retries.answered(args, verdict)
        return verdict.node_names

    async def rounds(self, seconds: float = PATIENCE_SECONDS) -> int:
        """So much later: how many pods are annotated in a round."""
        before = len(self.patched)
        self.now += seconds
        await self.retries.run_round()
        return len(self.patched) - before


@pytest.fixture
async def asked(leader: Leader) -> Asked:
    occupy(leader, "busy0", "n0", *range(8))
    occupy(leader, "busy1", "n1", *range(8))
    return Asked(leader)


def free(leader: Leader, *names: str) -> None:
    for name in names:
        leader.world.delete_pod(name)
    leader.see()


async def test_a_pod_that_now_fits_is_annotated_once(asked: Asked) -> None:
    assert asked.filter(pod("p", 8)) == []
    assert await asked.rounds() == 0, "nothing changed"
    free(asked.leader, "busy0")
    assert [await asked.rounds() for _ in range(3)] == [1, 0, 0]
    path, metadata = asked.patched[0]
    assert path == "/api/v1/namespaces/default/pods/p"
    assert metadata == {"uid": "uid-p", "annotations": {c.ANN_RETRIED_AT: "2026-01-31T12:00:00Z"}}


async def test_kube_scheduler_has_time_to_ask_by_itself(asked: Asked) -> None:
    asked.filter(pod("p", 8))
    free(asked.leader, "busy0")
    assert await asked.rounds(PATIENCE_SECONDS / 2) == 0
    assert asked.filter(pod("p", 8)) == ["n0"]
    free(asked.leader, "busy1")
    assert await asked.rounds() == 0, "it has a node"


async def test_another_reason_is_another_answer(asked: Asked) -> None:
    notes = {c.ANN_PATTERN: "Clique", c.ANN_REQUIRED_LINK: "NVLink"}
    asked.filter(pod("p", 8, annotations=notes))
    free(asked.leader, "busy0")
    assert await asked.rounds() == 1


async def test_changes_that_leave_the_answer_as_it_is_are_not_written(asked: Asked) -> None:
    asked.filter(pod("p", 8))
    free(asked.leader, "busy0")
    occupy(asked.leader, "next", "n0", 0)
    assert await asked.rounds() == 0


async def test_a_pod_is_annotated_at_intervals_and_not_at_each_change(asked: Asked) -> None:
    asked.filter(pod("p", 8))
    free(asked.leader, "busy0")
    assert await asked.rounds() == 1
    occupy(asked.leader, "next", "n0", 0)
    asked.filter(pod("p", 8))  # it tried, and came too late
    free(asked.leader, "next")
    assert await asked.rounds() == 0
    assert await asked.rounds(PAUSE_SECONDS) == 1


@pytest.mark.parametrize("outcome", [TryLater("no answer", 0.0), NotSent("no Lease")])
async def test_what_could_not_be_written_is_written_later(asked: Asked, outcome: Exception) -> None:
    asked.filter(pod("p", 8))
    free(asked.leader, "busy0")
    asked.outcome = outcome
    assert await asked.rounds() == 1
    asked.outcome = 200
    assert await asked.rounds(PAUSE_SECONDS) == 1


@pytest.mark.parametrize("status", [404, 409])
async def test_a_pod_that_is_gone_is_forgotten(asked: Asked, status: int) -> None:
    asked.filter(pod("p", 8))
    asked.outcome = status
    free(asked.leader, "busy0")
    assert await asked.rounds() == 1
    free(asked.leader, "busy1")
    assert await asked.rounds(PAUSE_SECONDS) == 0


async def test_a_pod_that_others_bound_is_forgotten(asked: Asked) -> None:
    asked.filter(pod("p", 1))
    occupy(asked.leader, "p", "n1")
    free(asked.leader, "busy0")
    assert await asked.rounds() == 0


async def test_few_are_looked_at_at_a_time_and_all_get_their_turn(asked: Asked) -> None:
    for number in range(AT_ONCE + 3):
        asked.filter(pod(f"p{number}", 8))
    free(asked.leader, "busy0")
    assert [await asked.rounds() for _ in range(3)] == [AT_ONCE, 3, 0]


async def test_whoever_asks_a_verb_waits_for_one_look_at_most(asked: Asked) -> None:
    for number in range(AT_ONCE):
        asked.filter(pod(f"p{number}", 8))
    occupy(asked.leader, "more", "n0", 0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    between = asyncio.create_task(others())
    assert await asked.rounds() == 0
    between.cancel()
    assert turns >= AT_ONCE - 1


async def test_all_get_their_turn_while_the_cluster_never_rests(asked: Asked) -> None:
    for number in range(AT_ONCE):
        asked.filter(pod(f"p{number}", 8))
    asked.filter(pod("small", 1))
    free(asked.leader, "busy0")
    occupy(asked.leader, "next", "n0", 0)
    assert await asked.rounds() == 0, "those before it are looked at first"
    occupy(asked.leader, "another", "n0", 1)
    assert await asked.rounds() == 1
    assert asked.patched[0][0].endswith("/small")


async def test_no_more_are_remembered_than_a_bound(asked: Asked) -> None:
    for number in range(MOST + 5):
        asked.filter(pod(f"p{number}", 8))
    free(asked.leader, "busy0")
    assert sum([await asked.rounds() for _ in range(MOST)]) == MOST
    assert not any(path.endswith("/p4") for path, _ in asked.patched)


async def test_a_pod_beyond_limits_is_annotated_when_they_become_wider(leader: Leader) -> None:
    asked = Asked(leader)
    leader.world.set_limits("few", maxGPUs=2)
    made = leader.add_pod(pod("p", 4))
    assert asked.filter(made) == []
    assert await asked.rounds() == 0
    leader.world.set_limits("few", maxGPUs=4)
    leader.see()
    assert await asked.rounds() == 1


@pytest.fixture
async def successor(asked: Asked) -> Asked:
    """A process that begins with pods that the one before may have rejected."""
    asked.leader.add_pod(pod("asked", 8))
    asked.leader.add_pod(pod("unasked", 8))
    asked.leader.add_pod(pod("gated", 8, schedulingGates=[{"name": c.GATE}]))
    asked.leader.add_pod(pod("without", 0))
    asked.retries.start()
    asked.retries.stop()
    return asked


async def test_what_was_rejected_before_a_restart_is_annotated_once_unless_it_is_asked_about(successor: Asked) -> None:
    successor.filter(pod("asked", 8))
    assert [await successor.rounds(), await successor.rounds(PAUSE_SECONDS), await successor.rounds(PAUSE_SECONDS)] == [0, 1, 0]
    assert successor.patched[0][0].endswith("/unasked")


async def test_what_could_not_be_written_after_a_restart_is_written_later(successor: Asked) -> None:
    successor.outcome = TryLater("no answer", 0.0)
    assert [await successor.rounds(PAUSE_SECONDS), await successor.rounds()] == [1, 0], "one try tells that the others must wait"
    successor.outcome = 200
    assert await successor.rounds(PAUSE_SECONDS) == 2
    assert [path.rsplit("/", 1)[-1] for path, _ in successor.patched] == ["asked", "unasked", "asked"]
    assert await successor.rounds(PAUSE_SECONDS) == 0


async def test_few_are_written_about_at_a_time_after_a_restart(asked: Asked) -> None:
    for number in range(AT_ONCE + 3):
        asked.leader.add_pod(pod(f"p{number}", 8))
    asked.retries.start()
    asked.retries.stop()
    assert [await asked.rounds(PAUSE_SECONDS), await asked.rounds(), await asked.rounds()] == [AT_ONCE, 3, 0]


async def test_a_pod_that_went_meanwhile_is_left_alone(successor: Asked) -> None:
    for name in ("asked", "unasked"):
        free(successor.leader, name)
    assert await successor.rounds(PAUSE_SECONDS) == 0
