"""Copies against their originals, piece by piece: a measured step needs next to no room that other steps do not need."""

from collections.abc import Iterable
from typing import Any

import torch

from kompakt_runtime.codec import Packed, pieces
from kompakt_runtime.saved.derived import Derived
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.noise import slices

Tensor = Any

# One example in so many, at least one, has its error kept until its output gradient arrives.
SAMPLE = 8


def differences(entry: SavedStorage, copies: Iterable[tuple[int, Tensor]], original: Tensor) -> tuple[int, float]:
    """How many elements of an entry's copy differ by more than its uses allow, and the largest error. Waits for the device.

    copies: parts of the copy, each with the place of its first element in `original`.
    """
    wrong, largest = [original.new_zeros((), dtype=torch.int64)], [original.new_zeros((), dtype=torch.float64)]
    channels = entry.packed.channels if entry.packed is not None else None
    for start, copy in copies:
        source = original[start : start + copy.numel()]
        if channels is not None:  # as they were packed, one bound is right for all
            copy, source = channels.deepened(copy, start), channels.deepened(source, start)
        for part, other in zip(slices(copy), slices(source), strict=True):
            more, error = _difference(entry, part, other)
            wrong.append(more)
            largest.append(error.double())
    more, error = torch.stack([torch.stack(wrong).sum().double(), torch.stack(largest).max()]).tolist()  # waits once
    return int(more), error


def _difference(entry: SavedStorage, copy: Tensor, original: Tensor) -> tuple[Tensor, Tensor]:
    if entry.bounded:
        # Rounding of this subtraction aside; what is not finite must be equal bit for bit or NaN in both.
        error = (copy - original).abs_()
        largest = error.amax()
        # Said at once where nobody waits for a device: to look which elements are finite takes as long as all the rest.
        if largest.device.type == "cpu" and largest <= entry.bound:
            return original.new_zeros((), dtype=torch.int64), largest
        error.masked_fill_(~original.isfinite(), 0)
        more = rounding(original, entry.copy.derivation.roundings) if isinstance(entry.copy, Derived) else 0.0
        return (~(error <= entry.bound * (1 + 1e-6) + more)).sum(), error.max()
    none = original.new_zeros((), dtype=torch.float64)
    if entry.same:
        return (copy != original).sum(), none
    return ((copy <= 0) != (original <= 0)).sum(), none


def rounding(original: Tensor, times: int) -> Tensor:
    """By how much more what is computed again may differ: it is within its bound before it is rounded to its type, so often."""
    return original.abs().masked_fill_(~original.isfinite(), 0).mul_(times * torch.finfo(original.dtype).eps)


def sample(t: Tensor, batched: bool) -> Tensor:
    """The first examples of `t`, or all of it where its first dimension is not the batch."""
    return t.detach()[: -(-len(t) // SAMPLE)] if batched else t.detach()


def sample_error(packed: Packed, t: Tensor, batched: bool) -> Tensor:
    """The copy less the original, of a sample of `t`. packed: of the whole storage of `t`."""
    some = sample(t, batched)
    first = some.storage_offset()
    last = first + sum((size - 1) * stride for size, stride in zip(some.shape, some.stride(), strict=True)) + 1
    copy = some.new_empty(last - first)
    for start, piece in pieces(packed):
        if start >= last:
            break
        lower, upper = max(start, first), min(start + piece.numel(), last)
        if lower < upper:
            copy[lower - first : upper - first] = piece[lower - start : upper - start]
    return copy.as_strided(some.shape, some.stride()) - some
