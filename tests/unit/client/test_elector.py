"""How the active operator's Lease is given up, and that whoever waits for it can be ended at any moment."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kompakt_client import elector as module
from kompakt_client.elector import LeaseElector
from kompakt_client.errors import Unreachable, rejection
from kompakt_operator.api import OperatorApi

Object = dict[str, Any]


class HeldLease(OperatorApi):
    """One Lease, as an API server keeps it; `meanwhile` happens once, between the next read and what follows it."""

    def __init__(self, holder: str = "") -> None:
        self.held: Object = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": holder, "renewTime": "t"}}
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.writes = 0

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
        found, happens, self.meanwhile = copy.deepcopy(self.held), self.meanwhile, None
        if happens is not None:
            await happens()
        return found

    async def update(self, path: str, body: Mapping[str, Any]) -> Object:
        if body["metadata"]["resourceVersion"] != self.held["metadata"]["resourceVersion"]:
            raise rejection(409, "Conflict", "changed meanwhile")
        self.writes += 1
        self.held = copy.deepcopy(dict(body))
        self.held["metadata"]["resourceVersion"] = str(self.writes + 1)
        return copy.deepcopy(self.held)

    @property
    def holder(self) -> str:
        return str(self.held["spec"]["holderIdentity"])


def elector(store: HeldLease) -> LeaseElector:
    return LeaseElector(store, "kompakt-system", "kompakt-operator", "me")


async def test_an_acquired_lease_is_given_up() -> None:
    store = HeldLease()
    mine = elector(store)
    await mine.acquired()
    before = store.holder
    await mine.release()
    assert (before, store.holder) == ("me", "")


async def test_a_renewal_that_arrives_in_between_does_not_keep_the_lease() -> None:
    """The request was cancelled here when the process was asked to end; the API server had it already."""
    store = HeldLease("me")

    async def renewed() -> None:
        await store.update("", store.held)

    store.meanwhile = renewed
    await elector(store).release()
    assert (store.holder, store.writes) == ("", 2)


async def test_a_lease_that_was_taken_without_hearing_of_it_is_given_up() -> None:
    store = HeldLease("me")
    await elector(store).release()
    assert store.holder == ""


async def test_somebody_elses_lease_stays() -> None:
    store = HeldLease("other")
    await elector(store).release()
    assert (store.holder, store.writes) == ("other", 0)


@pytest.mark.parametrize("answer", [rejection(403, "Forbidden", "rights are gone"), Unreachable("down"), None])
async def test_what_cannot_be_given_up_keeps_nobody_from_ending(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | None
) -> None:
    monkeypatch.setattr(module, "RELEASE", 0.05)
    store = HeldLease("me")

    async def meanwhile() -> None:
        if answer is not None:
            raise answer
        await asyncio.Event().wait()

    store.meanwhile = meanwhile
    await asyncio.wait_for(elector(store).release(), 5)
    assert store.holder == "me"


async def test_who_renews_can_be_cancelled_when_the_answer_has_just_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """At whichever of the loop's turns that is."""
    monkeypatch.setattr(module, "RETRY", 0.001)

    async def cancelled_after(count: int) -> bool:
        store, asked = HeldLease("me"), asyncio.Event()

        async def answers() -> None:
            asked.set()
            await turns(2)

        store.meanwhile = answers
        renewing = asyncio.create_task(elector(store).lost())
        await asked.wait()
        await turns(count)
        return await ends(renewing)

    assert [await cancelled_after(count) for count in range(8)] == [True] * 8


class Passing:
    """A clock that moves by what is waited for, and renewals that each take all the time they are given."""

    def __init__(self) -> None:
        self.now = 0.0

    async def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


async def test_the_holder_has_given_up_at_its_deadline_however_long_renewals_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another may take the Lease over a few seconds later; a renewal may not outlast the deadline it belongs to."""
    clock, mine = Passing(), elector(HeldLease("me"))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=clock.wait))
    monkeypatch.setattr(mine, "_try_once", clock.wait)
    await mine.lost()
    assert clock.now == module.DEADLINE < module.DURATION
    assert not mine.active


async def ends(task: asyncio.Task[None]) -> bool:
    """Whether one cancellation is enough."""
    task.cancel()
    await turns(20)
    return task.done()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (None, True),
        (rejection(409, "Conflict", "somebody was faster"), True),
        (rejection(403, "Forbidden", "no right"), False),
        (rejection(500, "InternalError", "etcd"), False),
        (Unreachable("down"), False),
    ],
)
async def test_it_hears_of_the_lease_while_the_api_server_answers(answer: Exception | None, heard: bool) -> None:
    store = HeldLease("other")
    standby = elector(store)
    assert not standby.heard
    assert not await standby._try_once()
    assert standby.heard

    async def meanwhile() -> None:
        if answer is not None:
            raise answer

    store.meanwhile = meanwhile
    assert not await standby._try_once()
    assert standby.heard is heard
