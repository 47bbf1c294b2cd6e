"""How the processes talk: frames of a length (8 bytes, big endian) and a pickle, over the child's standard input and output.

Pickle is safe here: both ends are this program, and nobody else can open the two pipes.
"""

import pickle
import struct
from asyncio import StreamReader
from typing import Any, BinaryIO, Final, NamedTuple

_LENGTH: Final = struct.Struct(">Q")


class CallFrame(NamedTuple):
    """One call. `number`: its answer bears the same."""

    number: int
    argument: Any


class ReplyFrame(NamedTuple):
    """What a call gave: a result, or the text of an error."""

    number: int
    result: Any = None
    error: str = ""


READY: Final = ReplyFrame(0)  # the child's first frame


def pack(frame: CallFrame | ReplyFrame) -> bytes:
    """A frame as bytes."""
    body = pickle.dumps(tuple(frame), pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def read_reply(stream: StreamReader) -> ReplyFrame:
    """The next reply. Raises asyncio.IncompleteReadError at the stream's end."""
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    return ReplyFrame(*pickle.loads(await stream.readexactly(length)))


def read_call(stream: BinaryIO) -> CallFrame | None:
    """The next call; None once the caller is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return CallFrame(*pickle.loads(body)) if len(body) == length else None
