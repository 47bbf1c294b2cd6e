"""The child: answers calls one after another, until its caller is gone.

    python -m kompakt_extender.deciding.child MODULE:FACTORY NICENESS

FACTORY takes nothing and gives the function that answers: one argument in, one result out.
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

from kompakt_client import memory
from kompakt_extender.deciding.frames import READY, CallFrame, ReplyFrame, pack, read_call

_LOG = logging.getLogger(__name__)
_FIRST_TO_GO: Final = "1000"  # proc(5), oom_score_adj: when memory is short, this process ends, and not the one that serves


def serve(answer: Callable[[Any], Any], calls: BinaryIO, replies: BinaryIO) -> None:
    """Answer until there are no more calls. What an answer raises is told to the caller, with its traceback in the log."""
    replies.write(pack(READY))
    replies.flush()
    while (call := read_call(calls)) is not None:
        replies.write(pack(_reply(answer, call)))
        replies.flush()


def _reply(answer: Callable[[Any], Any], call: CallFrame) -> ReplyFrame:
    try:
        return ReplyFrame(call.number, answer(call.argument))
    except Exception as error:
        _LOG.exception("call %d failed", call.number)
        return ReplyFrame(call.number, error=f"{type(error).__name__}: {error}")


def _take_output() -> BinaryIO:
    """Standard output for replies alone: what anybody prints goes to standard error."""
    mine = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return mine


def _step_back(niceness: int) -> None:
    """The serving process goes first, both with processors and with memory."""
    os.nice(niceness)
    with contextlib.suppress(OSError):  # where the kernel or the sandbox does not let us
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, "ascii")


def main() -> None:
    """The entry of the child."""
    target, niceness = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the caller says when to end: it closes our input, or kills
    replies = _take_output()
    _step_back(int(niceness))
    memory.one_heap()
    module, _, factory = target.partition(":")
    serve(getattr(import_module(module), factory)(), sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
