"""Noise as wide and as even as packing's errors, to measure what those do."""

import itertools
import math
import threading
from typing import Any

import torch

from kompakt_runtime.saved.handle import Handle

Tensor = Any
# A tensor of more elements is looked at in at most so many parts, which have as many elements as this at least; on GPUs more, for
# there a launch takes longer than what it does to fewer.
SMALL, PARTS, LEAST, LAUNCHED = 1 << 16, 64, 1 << 14, 1 << 22
Node = Any


class Noise(threading.local):
    """What is added to which inputs while an operation's backward function runs once more; from a generator of our own."""

    def __init__(self) -> None:
        self._bounds: dict[Handle, Any] = {}
        self._generators: dict[Any, torch.Generator] = {}

    def while_added(self, bounds_: dict[Handle, Any], node: Node, deltas: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self._bounds = bounds_
        try:
            return _once_more(node, deltas)
        finally:
            self._bounds = {}

    def alone(self, node: Node, deltas: tuple[Tensor, ...], even: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Noise as large at each element as `deltas` are there, and what the node's backward function makes of it.

        even: as large everywhere as `deltas` are on the whole.
        """
        noise = tuple(one if one is None else self._even(one, 1.0).mul_(_size(one) if even else one) for one in deltas)
        return noise, _once_more(node, noise)

    def like(self, t: Tensor) -> Tensor:
        """Noise as large at each element as `t` is there."""
        return self._even(t, 1.0).mul_(t)

    def _even(self, t: Tensor, bound: float) -> Tensor:
        generator = self._generators.setdefault(t.device, torch.Generator(t.device).manual_seed(0))
        return torch.empty_like(t).uniform_(-bound, bound, generator=generator)

    def added(self, handle: Any, t: Tensor) -> Tensor:
        """`t`, or a copy with errors as wide and as even as packing leaves them."""
        if not self._bounds or handle not in self._bounds:
            return t
        return self.widened(t, self._bounds[handle])

    def widened(self, t: Tensor, bound: Any) -> Tensor:
        """A copy with errors up to the bound; zeros stay."""
        generator = self._generators.setdefault(t.device, torch.Generator(t.device).manual_seed(0))
        noisy = t.clone()
        # As wide everywhere, or a number for each element.
        widths = slices(bound.expand(t.shape)) if isinstance(bound, torch.Tensor) else itertools.repeat(bound)
        for part, width in zip(slices(noisy), widths, strict=False):
            noise = torch.empty_like(part, dtype=wide(t)).uniform_(-1, 1, generator=generator).mul_(width)
            part.copy_(noise.mul_(part != 0).add_(part))
        return noisy


def _size(t: Tensor) -> Tensor:
    return (torch.linalg.vector_norm(t, dtype=wide(t)) / math.sqrt(t.numel())).to(t.dtype)


def _once_more(node: Node, deltas: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    found = node(*deltas)
    return found if isinstance(found, tuple) else (found,)


def handed_on(gradient: Tensor, like: Tensor) -> Tensor:
    """As autograd hands it on: of an operand that was expanded the engine sums the gradient after the backward function."""
    return gradient if gradient.shape == like.shape else gradient.sum_to_size(like.shape)


def slices(t: Tensor) -> tuple[Tensor, ...]:
    """Views of all of a tensor, each a few percent of a large one: what is computed of one at a time needs little room."""
    parts = parts_of(t)
    if parts == 1:
        return (t,)
    longest = max(range(t.dim()), key=lambda dim: t.shape[dim])
    return tuple(t.tensor_split(min(t.shape[longest], parts), longest))


def parts_of(t: Tensor) -> int:
    """In how many parts a tensor is looked at."""
    if t.numel() <= SMALL:
        return 1
    return min(PARTS, -(-int(t.numel()) // (LEAST if t.device.type == "cpu" else LAUNCHED)))


def absolute_sum(t: Tensor) -> Tensor:
    """Sum of |t|; a sixth of the time that the norm takes on CPUs."""
    return torch.stack([part.abs().sum(dtype=wide(t)) for part in slices(t)]).sum()


def wide(t: Tensor) -> Any:
    return torch.float64 if t.dtype == torch.float64 else torch.float32
