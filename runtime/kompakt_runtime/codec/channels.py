"""Bounds of their own for the channels of a tensor: powers of two, so that multiplying by them rounds nothing."""

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
        return part * self._factors(part, first)

    def flatten_(self, part: Tensor, first: int) -> None:
        """The opposite, in place."""
        part.div_(self._factors(part, first))

    def _factors(self, part: Tensor, first: int) -> Tensor:
        powers = torch.tensor([2.0**depth for depth in range(DEEPEST + 1)], dtype=part.dtype)
        places = torch.arange(first, first + part.numel())
        if self.stride > 1:
            places //= self.stride
        return powers[self.depths.long()][places.remainder_(len(self.depths))]
