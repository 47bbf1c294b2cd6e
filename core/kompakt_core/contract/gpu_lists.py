"""Sets of GPUs as they stand in annotations: UUIDs or indices of the node, joined with commas, in the order of the pattern."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kompakt_core.contract import counts
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid

MAX_TEXT: Final = 1 << 16  # far above the UUIDs of any machine; more is an accident
EXAMPLE: Final = "GPU-8c1b0e2a,GPU-1f0d77c3"


def encode_uuids(uuids: Iterable[GpuUuid]) -> str:
    """The annotation's text; no GPUs give an empty one."""
    return ",".join(uuids)


def decode_uuids(text: str, where: str) -> tuple[GpuUuid, ...]:
    """The UUIDs, in order; `where` names the annotation in the error. Blanks around a UUID are allowed.

    Raises:
        InvalidInput: a UUID stands twice or is empty, or the text is longer than any machine's.
    """
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"{where}: {len(text)} characters; right would be at most {MAX_TEXT}")
    uuids = tuple(GpuUuid(part.strip()) for part in text.split(",")) if text.strip() else ()
    if not all(uuids):
        raise InvalidInput(f"{where}: a UUID is empty; right would be UUIDs with one comma between them, such as {EXAMPLE}")
    if len(set(uuids)) < len(uuids):
        twice = next(uuid for uuid, times in Counter(uuids).items() if times > 1)
        raise InvalidInput(f"{where}: {twice[:64]!r} stands there twice; right would be each GPU once, such as {EXAMPLE}")
    return uuids


def readable_uuids(text: str | None) -> tuple[GpuUuid, ...]:
    """The same of what already stands on a pod, for who must go on: none where it names a GPU twice; empty parts are left out."""
    parts = tuple([GpuUuid(word) for part in (text or "").split(",") if (word := part.strip())])
    return parts if len(set(parts)) == len(parts) else ()


def encode_indices(indices: Iterable[GpuIndex]) -> str:
    """The annotation's text; no GPUs give an empty one."""
    return ",".join(map(counts.encode, indices))


def decode_indices(text: str, where: str) -> tuple[GpuIndex, ...]:
    """The indices, in order.

    Raises:
        InvalidInput: an index stands twice or is no whole number.
    """
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"{where}: {len(text)} characters; right would be at most {MAX_TEXT}")
    indices = tuple(GpuIndex(counts.decode(part, where)) for part in text.split(",")) if text else ()
    if len(set(indices)) < len(indices):
        raise InvalidInput(f"{where}: {text[:64]!r} names a GPU twice; right would be each index once, such as 0,3")
    return indices
