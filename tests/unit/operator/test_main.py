"""How the operator's process ends what it began."""

import asyncio

import pytest

from kompakt_operator.main import _first


class Working:
    """Something that goes on until it is cancelled."""

    def __init__(self) -> None:
        self.ended = False

    async def go_on(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def at_once() -> None:
    await asyncio.sleep(0)


async def broken() -> None:
    await asyncio.sleep(0)
    raise ValueError("broken")


async def test_the_first_to_end_ends_the_others() -> None:
    working = Working()
    await _first(at_once(), working.go_on())
    assert working.ended


async def test_what_the_first_raises_rises_after_the_others_have_ended() -> None:
    working = Working()
    with pytest.raises(ValueError, match="broken"):
        await _first(broken(), working.go_on())
    assert working.ended


async def test_who_lost_the_lease_goes_on_with_nothing() -> None:
    """Work lies two levels deep: the Lease is waited for beside the operator, whose workers are waited for together."""
    workers = [Working(), Working()]
    ended: list[bool] = []
    await _first(at_once(), _first(*(worker.go_on() for worker in workers)))
    ended.extend(worker.ended for worker in workers)  # now, and not only when the loop closes
    assert ended == [True, True]
