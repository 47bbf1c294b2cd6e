"""Words of the command line: case-folded values in, GB/s out."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuMask, mask_of
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import LinkGraph

Word = TypeVar("Word", bound=StrEnum)


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
    indices: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(part) > 9:
            raise InvalidInput(f"{option}: {part!r} is no GPU index; write indices and ranges such as 0,1,4-7")
        last = int(high) if dash else int(low)
        if last < int(low):
            raise InvalidInput(f"{option}: {part!r} runs backwards; write {last}-{int(low)}")
        if last >= graph.size:
            raise InvalidInput(f"{option}: there is no GPU {last}; the machine has {graph.size}, numbered from 0")
        indices.update(range(int(low), last + 1))
    return mask_of(sorted(indices))


def read_machine(name: str) -> LinkGraph:
    """The link graph of a known machine, of a file with `nvidia-smi topo -m` output, or of that on standard input (-)."""
    if name == "-":
        return read_description(sys.stdin.read(), "machine")
    path = Path(name)
    if not path.is_file():
        return read_description(name, "machine")
    try:
        return read_description(path.read_text(), "machine")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{name}: cannot be read as text ({error})") from None
