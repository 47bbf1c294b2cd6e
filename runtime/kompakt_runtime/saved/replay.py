"""Masks of nn.Dropout on CPUs that are drawn again instead of kept, where it was proved to give the same bits.

The idea is Shift-BNN's, which draws random numbers again instead of storing them. Only the state of the user's generator is read;
what is drawn again is drawn by a generator of our own.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Tensor = Any
Key = tuple[Any, ...]

# The first elements are drawn again each time, to see that nobody else used the generator since its state was read: so many that
# two masks agree in them by chance with a probability below exp(-CERTAIN), 4e-31. Two elements differ with probability
# 2 p (1 - p).
CERTAIN = 70


@dataclass(frozen=True)
class Replay:
    """A mask of zeros and 1 / keep: `state` is the generator's before the draw."""

    state: Tensor
    keep: float
    elements: int
    dtype: Any

    @property
    def nbytes(self) -> int:
        return int(self.state.numel())

    def decode(self, elements: int | None = None) -> Tensor:
        """The mask's storage, 1-D, or its first elements."""
        generator = torch.Generator()
        generator.set_state(self.state)
        mask = torch.empty(self.elements if elements is None else min(elements, self.elements), dtype=self.dtype)
        # The words of torch's own dropout (ATen/native/Dropout.cpp).
        return mask.bernoulli_(self.keep, generator=generator).div_(self.keep)


def state_before(module: Any, args: tuple[Any, ...]) -> Tensor | None:
    """The state of the user's generator before `module`'s forward function runs; None where it is no dropout on a CPU."""
    if type(module).forward is not nn.Dropout.forward or not 0 < module.p < 1 or not module.training:
        return None
    return torch.get_rng_state() if args and isinstance(args[0], torch.Tensor) and args[0].device.type == "cpu" else None


class Replays:
    """What was proved so far, by module, shape, strides and type."""

    def __init__(self) -> None:
        self._proved: dict[Key, bool] = {}

    def of(self, name: str, module: Any, mask: Tensor, flat: Tensor, state: Tensor) -> Replay | None:
        """Instead of `mask`, whose storage is `flat`; None where a bit an element is smaller, or drawing gives other bits."""
        copy = Replay(state, 1 - module.p, flat.numel(), flat.dtype)
        if copy.nbytes >= flat.numel() // 8:
            return None
        key = (name, copy.keep, tuple(mask.shape), mask.stride(), mask.dtype)
        if key not in self._proved:
            self._proved[key] = _same(copy.decode(), flat)
        look = math.ceil(CERTAIN / (2 * module.p * (1 - module.p)))
        # Also the first time: that the first elements of a draw do not depend on how many follow is part of the proof.
        if self._proved[key] and not _same(copy.decode(look), flat[:look]):
            self._proved[key] = False
        return copy if self._proved[key] else None


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(a.view(torch.uint8), b.contiguous().view(torch.uint8)))
