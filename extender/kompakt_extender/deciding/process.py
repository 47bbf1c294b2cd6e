"""A process of our own that answers calls, one at a time: it may take long, hang or die, and the verbs go on.

It holds nothing that cannot be sent again. Whoever calls is told when it is a new one, and then sends everything.
"""

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any, Final, Protocol

from kompakt_core.errors import TryLater
from kompakt_extender.deciding.frames import READY, CallFrame, ReplyFrame, pack, read_reply

_LOG = logging.getLogger(__name__)
START_SECONDS: Final = 60.0  # it imports numpy, on a busy machine too
RETRY_SECONDS: Final = 1.0
_CHUNK: Final = 1 << 16  # bytes handed to the pipe at once, so that the loop serves others in between


class TookTooLong(TryLater):
    """There was no answer in time. The process was killed; the next call starts another one."""


class ProcessDied(TryLater):
    """The process ended, or could not be started. The next call starts another one."""


class CallFailed(Exception):
    """The call itself raised; the text says what."""


class Callee(Protocol):
    """What answers calls."""

    @property
    def ready(self) -> bool:
        """Whether a call is answered without the start of a process."""
        ...

    async def call(self, argument: Callable[[bool], Any], seconds: float) -> Any:
        """See DecidingProcess.call."""
        ...


class DecidingProcess:
    """`target`: MODULE:FACTORY, see child.py; started at the first call. `niceness`: see nice(2)."""

    def __init__(self, target: str, *, niceness: int = 1, ended: Callable[[str], None] = lambda why: None) -> None:
        """`ended` is told why whenever the process ended unasked."""
        self._target = target
        self._niceness = niceness
        self._ended = ended
        self._process: Process | None = None
        self._turn = asyncio.Lock()
        self._number = 0
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    @property
    def ready(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def call(self, argument: Callable[[bool], Any], seconds: float) -> Any:
        """What the process answers. `argument` is asked for what to send; True: this process was never sent anything.

        Raises:
            TookTooLong: not within so many seconds; the start of the process is not counted.
            ProcessDied: it ended meanwhile, or could not be started.
            CallFailed: the answering function raised.
        """
        async with self._turn:
            process, fresh = await self._running()
            self._number += 1
            try:
                async with asyncio.timeout(seconds):
                    reply = await self._exchange(process, CallFrame(self._number, argument(fresh)))
            except TimeoutError:
                await self._end(f"no answer within {seconds:g} s")
                raise TookTooLong(f"no answer within {seconds:g} s", RETRY_SECONDS) from None
            except (asyncio.IncompleteReadError, ConnectionError):
                raise ProcessDied(await self._end("it died"), RETRY_SECONDS) from None
            except BaseException:  # cancelled within a frame, say: nobody knows what has been sent
                self._kill()
                raise
        if reply.error:
            raise CallFailed(reply.error)
        return reply.result

    async def stop(self) -> None:
        """End it for good."""
        self._stopped = True
        process = self._process
        self._kill()
        if process is not None:
            await _gone(process)

    async def _running(self) -> tuple[Process, bool]:
        if self._stopped:
            raise ProcessDied("stopped", RETRY_SECONDS)
        if self._process is not None and self.ready:
            return self._process, False
        if self._process is not None:
            await self._end("it died")
        return await self._start(), True

    async def _start(self) -> Process:
        command = (sys.executable, "-m", "kompakt_extender.deciding.child", self._target, str(self._niceness))
        try:
            self._process = process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
            async with asyncio.timeout(START_SECONDS):
                ready = await read_reply(_stdout(process))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise ProcessDied(await self._end(f"it does not start: {error}"), RETRY_SECONDS) from error
        except BaseException:
            self._kill()
            raise
        assert ready == READY, ready
        _LOG.info("process %d answers calls of %s", process.pid, self._target)
        return process

    async def _exchange(self, process: Process, call: CallFrame) -> ReplyFrame:
        frame = pack(call)
        assert process.stdin is not None
        for start in range(0, len(frame), _CHUNK):
            process.stdin.write(frame[start : start + _CHUNK])
            await process.stdin.drain()
        reply = await read_reply(_stdout(process))
        assert reply.number == call.number, (reply.number, call.number)
        return reply

    async def _end(self, why: str) -> str:
        """Kill what runs; returns what is to be said about it."""
        process = self._process
        self._kill()
        if process is not None:
            await _gone(process)
            why = f"process {process.pid} of {self._target}: {why}"
        if not self._stopped:
            _LOG.warning("%s; another one is started with the next call", why)
            self._ended(why)
        return why

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def _gone(process: Process) -> None:
    """Wait until it has ended and both pipes are closed."""
    assert process.stdin is not None
    process.stdin.close()
    await process.wait()
    await _stdout(process).read()
    with contextlib.suppress(ConnectionError):
        await process.stdin.wait_closed()


def _stdout(process: Process) -> asyncio.StreamReader:
    assert process.stdout is not None
    return process.stdout
