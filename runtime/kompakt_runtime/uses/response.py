"""What a backward function does when something else stands in one of its slots: what it reads there, seen from outside.

This is how rows of the table are tested, and how a process tries those that no test could.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.uses.reads import Read

Tensor = Any
Gradients = tuple[Any, ...]
Run = Callable[[Any], Gradients]

# How large the change is, as a share of the standard deviation: far enough for a curve to show above the type's last bits; and
# how far twice the effect may be from the effect of twice the change, as a share of it, where the function is linear. GPUs may
# multiply float32 as TF32, of 10 bits.
BENT: Final = {torch.float64: (0.1, 1e-7), torch.float32: (0.2, 0.01), torch.bfloat16: (0.5, 0.05), torch.float16: (0.5, 0.02)}
UNSTEADY: Final = 8.0  # times what two equal runs differ by


@dataclass(frozen=True)
class Response:
    """Numbers of the gradients that moved.

    at_all: when other numbers stood there. by_size: when signs and zeros were as before, and sizes not. slightly: when each
    element was off by its last bits. bent: not in proportion to the change. spread: elsewhere than at the elements that were
    changed.
    """

    at_all: frozenset[int]
    by_size: frozenset[int] = frozenset()
    slightly: frozenset[int] = frozenset()
    bent: frozenset[int] = frozenset()
    spread: frozenset[int] = frozenset()


def response(run: Run, exact: Tensor, seed: int = 0) -> Response:
    """run: the gradients with this tensor in the slot; exact: what stands there."""
    usual = _Usual(run(exact), run(exact))
    if not exact.is_floating_point():
        return Response(usual.moved(run(_other_places(exact))))
    draw = torch.Generator(exact.device).manual_seed(seed)
    step, share = BENT[exact.dtype]
    noise = torch.empty_like(exact).normal_(generator=draw)  # of the same strides: a kernel may have been chosen by them
    at_all = usual.moved(run(noise))
    change = noise.mul_(step * float(exact.float().std(correction=0)) or step)
    return Response(
        at_all,
        usual.moved(run(torch.empty_like(exact).uniform_(-4, 2, generator=draw).exp2_().mul_(exact))),
        usual.moved(run(exact * (1 + 4 * torch.finfo(exact.dtype).eps))),
        usual.bent(run(exact + change), run(exact + 2 * change), share),
        usual.spread(run, exact, change),
    )


def agrees(read: Read, gradients: tuple[int, ...], seen: Response) -> bool:
    """Is no more read than the row says?"""
    if read is Read.EXACT:
        return True
    return seen.at_all <= frozenset(gradients) and not {
        Read.SIGN: seen.by_size,
        Read.RANGE: seen.slightly,
        Read.SHAPE: seen.at_all,
        Read.PRODUCT: seen.bent,
        Read.LINEAR: seen.bent,
        Read.ELEMENT: seen.spread,
    }.get(read, frozenset())


def _other_places(t: Tensor) -> Tensor:
    """Other booleans, or the same whole numbers elsewhere: all of them are allowed."""
    return ~t if t.dtype == torch.bool else torch.empty_like(t).copy_(t.flatten().roll(1).view_as(t))


class _Usual:
    """The gradients as they are. Kernels that add up in any order never give the same bits twice: less than that is no effect."""

    def __init__(self, plain: Gradients, again: Gradients) -> None:
        self._plain = [(i, a) for i, a in enumerate(plain) if a is not None]
        self._unsteady = {i: UNSTEADY * _norm(again[i] - a) for i, a in self._plain}

    def moved(self, other: Gradients) -> frozenset[int]:
        return frozenset(i for i, a in self._plain if not _norm(other[i] - a) <= self._unsteady[i])  # NaN has moved too

    def bent(self, once: Gradients, twice: Gradients, share: float) -> frozenset[int]:
        def too_far(i: int, a: Tensor) -> bool:
            effect = twice[i] - a
            rounded = torch.finfo(a.dtype).eps * _norm(a)  # three gradients were: much of an effect that is small beside them
            return not _norm(effect - 2 * (once[i] - a)) <= share * _norm(effect) + 3 * self._unsteady[i] + rounded  # nor NaN

        return frozenset(i for i, a in self._plain if too_far(i, a))

    def spread(self, run: Run, exact: Tensor, change: Tensor) -> frozenset[int]:
        """Every second element is changed; a gradient of another shape cannot follow element by element."""
        there = (torch.arange(exact.numel(), device=exact.device) % 2 == 1).view(exact.shape)
        other = run(exact + change * ~there)
        return frozenset(
            i for i in self.moved(other)
            if other[i].shape != exact.shape or _norm((other[i] - dict(self._plain)[i])[there]) > self._unsteady[i]
        )  # fmt: skip


def _norm(t: Tensor) -> float:
    return float(torch.linalg.vector_norm(t, dtype=torch.float64))
