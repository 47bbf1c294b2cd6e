"""The largest batch whose training fits into a given memory, from what smaller ones took. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# What lies beyond the measured batch is taken as so much smaller than the line says: sizes that an allocator rounds up, kernels
# that take another way at another size.
MARGIN: Final = 0.02


@dataclass(frozen=True)
class Taken:
    """What training took with one batch.

    batch: samples of one forward pass; peak: the most bytes held at a time, first steps and measured ones in it, and what an
    allocator reserved; fixed: those of them that any batch takes (program, weights, optimizer state).
    """

    batch: int
    peak: int
    fixed: int = 0


def largest_batch(taken: Sequence[Taken], limit: int) -> int:
    """How many samples a forward pass may have so that training stays within `limit` bytes; 0 if not even one fits.

    With two or more sizes: on the line through the two largest. With one: all above `fixed` grows with the batch; what of it does
    not (working memory, say) makes the answer smaller, never larger.
    How many times smaller activations get is taken as at the largest batch measured. At a larger one it is the same or better:
    sum(delta²) falls with the batch at least as fast as the square of the mean |momentum| does, so bounds get no tighter
    (decision 0072 has the formula). Raises ValueError where the figures allow no answer.
    """
    points = sorted({point.batch: point for point in taken}.values(), key=lambda point: point.batch)
    if not points:
        raise ValueError("no batch was measured")
    if points[0].batch < 1:
        raise ValueError(f"a batch of {points[0].batch} samples cannot be measured; it must be at least 1")
    last = points[-1]
    before = points[-2] if len(points) > 1 else Taken(0, last.fixed)
    slope = (last.peak - before.peak) / (last.batch - before.batch)
    if slope <= 0:
        raise ValueError(
            f"{before.batch} and {last.batch} samples took {before.peak} and {last.peak} bytes: the larger batch must take more"
        )
    return max(0, _within((limit - last.peak) / slope, last.batch))


def _within(more: float, batch: int) -> int:
    return math.floor(batch + (more * (1 - MARGIN) if more > 0 else more))
