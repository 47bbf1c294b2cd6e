"""Bounds of their own for the channels of a tensor: powers of two, so that multiplying by them rounds nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

Tensor = Any
DEEPEST: Final = 16  # the tightest bound is the widest one over two to this power
TYPES: Final = frozenset({torch.float64, torch.float32, torch.bfloat16})  # float16 has too few exponents
# Below it products of codes and factors could leave the type's normal numbers.
LEAST_BOUND: Final = 1e-30


@dataclass(frozen=True)
class Channels:
    """Elements of channel c bear 2 ** -depths[c] times the tensor's bound. depths: uint8, at most DEEPEST; stride: elements from
    one channel to the next in storage order, in which channels take turns.
    """

    depths: Tensor
    stride: int

    def deepened(self, part: Tensor, first: int) -> Tensor:
        """Elements from place `first` on, so that one bound is right for all."""
        deep = torch.empty_like(part)
        for some, into, factors in self._rows(part, deep, first):
            torch.mul(some, factors, out=into)
        return deep

    def flatten_(self, part: Tensor, first: int) -> None:
        """The opposite, in place."""
        for some, _, factors in self._rows(part, part, first):
            some.div_(factors)

    def stays_finite(self, part: Tensor, first: int) -> bool:
        """Whether no number of it leaves its type when it is deepened; those that are none already do no harm."""
        largest = float(torch.finfo(part.dtype).max) / 2.0**DEEPEST
        if bool(part.abs().amax() < largest):  # not where there is a NaN
            return True
        return bool(torch.equal(self.deepened(part, first).isfinite(), part.isfinite()))

    def _rows(self, part: Tensor, other: Tensor, first: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Both 1-D tensors in pieces, with what the elements of each are to be multiplied by: whole rounds of all channels, and
        what lies before and behind them.
        """
        size = len(self.depths) * self.stride
        if size > part.numel():  # factors of a whole round would need more room than the elements
            places = (
                torch.arange(first, first + part.numel(), device=part.device)
                .floor_divide_(self.stride)
                .remainder_(len(self.depths))
            )
            yield part, other, self._factors(part.dtype)[places.remainder_(len(self.depths))]
            return
        factors = self._factors(part.dtype).repeat_interleave(self.stride)
        before = -first % size
        whole = before + (part.numel() - before) // size * size
        if before:
            yield part[:before], other[:before], factors[size - before :]
        if whole > before:
            yield part[before:whole].view(-1, size), other[before:whole].view(-1, size), factors
        if whole < part.numel():
            yield part[whole:], other[whole:], factors[: part.numel() - whole]

    def _factors(self, dtype: Any) -> Tensor:
        """One a channel."""
        powers = torch.tensor([2.0**depth for depth in range(DEEPEST + 1)], dtype=dtype, device=self.depths.device)
        return powers[self.depths.long()]
