"""A process that answers calls: whatever becomes of it, the caller hears of it in time and the next call is answered."""

import asyncio
import io
import os

import pytest

from kompakt_extender.deciding.child import serve
from kompakt_extender.deciding.frames import READY, CallFrame, ReplyFrame, pack, read_reply
from kompakt_extender.deciding.process import CallFailed, DecidingProcess, ProcessDied, TookTooLong

pytestmark = pytest.mark.anyio
TOLD = "tests.support.extender.answering:told"
LONG = 60.0


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
async def process(ended):
    made = DecidingProcess(TOLD, ended=ended.append)
    yield made
    await made.stop()


async def test_calls_are_answered_in_their_order_by_one_process(process, ended):
    answers = await asyncio.gather(*(process.call(lambda fresh, n=n: (n, fresh), LONG) for n in range(3)))
    assert answers[-1] == [(0, True), (1, False), (2, False)]
    assert ended == []


async def test_a_large_argument_arrives_whole(process):
    many = [(f"node-{n}", n) for n in range(50_000)]
    assert (await process.call(lambda fresh: many, LONG))[-1] == many


async def test_what_raises_is_told_and_the_process_goes_on(process):
    with pytest.raises(CallFailed, match="ValueError: no such pattern"):
        await process.call(lambda fresh: ("raise", "no such pattern"), LONG)
    assert await process.call(lambda fresh: fresh, LONG) == [False]


async def test_what_is_printed_spoils_no_answer(process):
    assert await process.call(lambda fresh: ("print", "hello"), LONG) == [("print", "hello")]


async def test_a_call_that_takes_too_long_costs_the_process_and_no_other_call(process, ended):
    first = await process.call(lambda fresh: ("pid",), LONG)
    with pytest.raises(TookTooLong, match=r"no answer within 0.2 s"):
        await process.call(lambda fresh: ("sleep", 600), 0.2)
    assert await process.call(lambda fresh: fresh, LONG) == [True]
    assert not os.path.exists(f"/proc/{first}")
    assert len(ended) == 1


async def test_one_that_dies_within_a_call_is_replaced(process):
    with pytest.raises(ProcessDied, match="it died"):
        await process.call(lambda fresh: ("die",), LONG)
    assert await process.call(lambda fresh: fresh, LONG) == [True]


async def test_one_that_is_killed_between_calls_is_replaced(process):
    pid = await process.call(lambda fresh: ("pid",), LONG)
    os.kill(pid, 9)
    async with asyncio.timeout(LONG):
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(0.01)
    for _ in range(2):  # whether the end was noticed yet is chance
        try:
            assert (await process.call(lambda fresh: fresh, LONG))[0] is True
            break
        except ProcessDied:
            continue
    else:
        pytest.fail("it was not replaced")


async def test_one_that_does_not_start_is_tried_again_with_the_next_call():
    broken = DecidingProcess("tests.support.extender.answering:broken")
    for _ in range(2):
        with pytest.raises(ProcessDied, match="does not start"):
            await broken.call(lambda fresh: fresh, LONG)


async def test_a_call_that_is_cancelled_leaves_nothing_half_sent(process):
    await process.call(lambda fresh: fresh, LONG)
    slow = asyncio.create_task(process.call(lambda fresh: ("sleep", 600), LONG))
    await asyncio.sleep(0.1)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert await process.call(lambda fresh: fresh, LONG) == [True]


async def test_after_stop_there_is_no_process_and_none_is_started(process):
    pid = await process.call(lambda fresh: ("pid",), LONG)
    await process.stop()
    with pytest.raises(ProcessDied, match="stopped"):
        await process.call(lambda fresh: fresh, LONG)
    assert not os.path.exists(f"/proc/{pid}")


async def test_the_process_goes_last_with_processors_and_first_when_memory_is_short(process):
    niceness, score = await process.call(lambda fresh: ("niceness",), LONG)
    assert niceness == min(os.nice(0) + 1, 19), "19 is as nice as a process can be"
    assert score == 1000


async def test_the_child_ends_when_its_caller_is_gone_within_a_frame_too():
    replies = io.BytesIO()
    serve(lambda argument: argument, io.BytesIO(pack(CallFrame(1, "whole")) + pack(CallFrame(2, "half"))[:-3]), replies)
    heard = asyncio.StreamReader()
    heard.feed_data(replies.getvalue())
    heard.feed_eof()
    assert [await read_reply(heard), await read_reply(heard)] == [READY, ReplyFrame(1, "whole")]
    assert heard.at_eof()
