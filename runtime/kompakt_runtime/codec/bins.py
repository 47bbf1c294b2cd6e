"""Codes of a part's elements; where few of them can miss the bound, only those are looked at closely."""

from functools import lru_cache
from typing import Any

import torch

from kompakt_runtime.codec import short
from kompakt_runtime.codec.grid import WIDEST, Grid, quantise, work_dtype

Tensor = Any


def coded(grid: Grid, values: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes (int32; 0 for outliers and zeros) and the places of outliers, of values in rows."""
    if grid.short:
        return _told(*short.quantise(grid, values))
    quick = None if grid.stochastic or not _never_zero(grid) else _nearest(grid, values)
    return quick or _told(*quantise(grid, values, draws))


def _nearest(grid: Grid, values: Tensor) -> tuple[Tensor, Tensor] | None:
    """As `quantise` says, which is asked about rows with an element that is as far off as the bound, or by more: it knows how
    the difference was rounded, where this only sees it. None where a code is too wide, or something not a number.
    """
    work = work_dtype(values.dtype)
    magnitude = values.to(work).abs()
    code = (magnitude * (1 / grid.step)).floor_()
    if not (values.numel() and bool(code.amax() < 1 << WIDEST)):
        return None
    off = (code + 0.5).mul_(grid.step).sub_(magnitude).abs_().amax(dim=1)
    codes = code.to(torch.int32)
    doubtful = (off >= grid.bound).nonzero().view(-1)
    if not doubtful.numel():
        return codes, doubtful
    some, outside = quantise(grid, values.index_select(0, doubtful), None)
    codes.index_copy_(0, doubtful, some)
    row, column = outside.nonzero(as_tuple=True)
    return codes, doubtful[row] * values.shape[1] + column


@lru_cache(1024)
def empty(grid: Grid) -> int:
    """Bit pattern of a number without a doubt about it, whose code is 0: zero lies as far from its bin's middle as the bound."""
    quick = not (grid.short or grid.stochastic) and _never_zero(grid)
    middle = torch.tensor(grid.step / 2 if quick else 0.0, dtype=grid.dtype)
    return int(middle.view(getattr(torch, f"int{8 * grid.dtype.itemsize}")))


def _never_zero(grid: Grid) -> bool:
    """No code stands for a number that arithmetic might flush to zero."""
    return grid.step >= 4 * float(torch.finfo(grid.dtype).tiny)


def _told(codes: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    return codes, outside.view(-1).nonzero().view(-1)
