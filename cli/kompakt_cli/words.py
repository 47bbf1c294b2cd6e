"""Words of the command line: case-folded values in, GB/s out."""

import os
import sys
from enum import StrEnum
from typing import BinaryIO, Final, TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuMask, mask_of
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import LinkGraph

Word = TypeVar("Word", bound=StrEnum)
_MAX_BYTES: Final = 1 << 20  # as much as a ConfigMap holds
_SHOWN: Final = 200  # characters of a wrong name


def word_of(kind: type[Word], text: str, option: str) -> Word:
    """The member that `text` names in any case. Raises InvalidInput with all members."""
    for member in kind:
        if member.value.casefold() == text.casefold():
            return member
    raise InvalidInput(f"{option}: unknown value {text!r}; use one of {', '.join(kind)}")


def gigabytes(megabytes_per_second: int) -> str:
    """GB/s with one decimal."""
    return f"{megabytes_per_second / 1000:.1f}"


def gpu_set(text: str, graph: LinkGraph, option: str) -> GpuMask:
    """GPU indices such as `0,1,4-7` as a set. Raises InvalidInput for other words and for GPUs the machine lacks."""
    found = numbers(text, graph.size, option, "GPU", f"the machine has {graph.size}")
    return mask_of(sorted(found))


def numbers(text: str, end: int, option: str, what: str, there: str) -> set[int]:
    """Numbers and ranges such as `0,1,4-7`, all below `end`. Raises InvalidInput; `there` says how many there are."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(part) > 9:
            raise InvalidInput(f"{option}: {part!r} is no {what} index; write indices and ranges such as 0,1,4-7")
        last = int(high) if dash else int(low)
        if last < int(low):
            raise InvalidInput(f"{option}: {part!r} runs backwards; write {last}-{int(low)}")
        if last >= end:
            raise InvalidInput(f"{option}: there is no {what} {last}; {there}, numbered from 0")
        found.update(range(int(low), last + 1))
    return found


def read_machine(name: str) -> LinkGraph:
    """The link graph of a known machine, of a file that describes one, or of what standard input (-) says.

    A pipe is a file too: `--matrix <(ssh box nvidia-smi topo -m)`. Raises InvalidInput for what is none of these.
    """
    if name == "-":
        return read_description(_text(sys.stdin.buffer, "standard input"), "machine")
    if not os.path.exists(name):  # unlike Path.exists it takes names of any length
        if len(name.split()) == 1 and ("/" in name or "." in name):
            raise InvalidInput(f"{name[:_SHOWN]}: there is no such file, and unknown machine name")
        return read_description(name, "machine")
    try:
        with open(name, "rb") as file:
            return read_description(_text(file, name), "machine")
    except OSError as error:
        raise InvalidInput(f"{name}: cannot be read ({error.strerror})") from None


def _text(file: BinaryIO, name: str) -> str:
    data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidInput(f"{name}: more than {_MAX_BYTES} bytes; no description of a machine is that long")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: cannot be read as text ({error})") from None
