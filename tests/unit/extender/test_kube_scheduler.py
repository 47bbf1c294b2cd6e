"""Asking kube-scheduler how it is: whatever it answers becomes a word, and silence does too."""

import asyncio

import pytest

from kompakt_extender import kube_scheduler
from kompakt_extender.kube_scheduler import SchedulerProbe


async def told(answer: bytes | None) -> str:
    """What is said of a kube-scheduler that answers this; None: it takes the connection and says nothing."""

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"GET /livez HTTP/1.1\r\n"
        if answer is None:
            await reader.read()  # until the other side gives up
        else:
            writer.write(answer)
        writer.close()
        await writer.wait_closed()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        said = await SchedulerProbe(server.sockets[0].getsockname()[1])()
        await served.wait()
    return said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok", "", id="well"),
        pytest.param(b"HTTP/1.1 500 Internal Server Error\r\n\r\n", "/livez answers 500", id="not well"),
        pytest.param(b"", "/livez answers nothing", id="hangs up"),
        pytest.param(None, "too slow", id="silent"),
    ],
)
async def test_what_it_answers_is_told(answer: bytes | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_scheduler, "_SECONDS", 0.2)
    said = await told(answer)
    assert (words in said) if words else said == ""


async def test_one_that_is_not_there_is_told() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert f"does not answer on port {port}" in await SchedulerProbe(port)()
