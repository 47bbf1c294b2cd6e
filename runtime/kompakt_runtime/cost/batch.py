"""The largest batch whose training fits into a given memory, from what smaller ones took. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# What lies beyond the measured batch is taken as so much smaller than the line says: sizes that an allocator rounds up, kernels
# that take another way at another size.
MARGIN: Final = 0.02
# Beyond a line through measured sizes more: a peak is the highest of several lines, and a steeper one may still be hidden. Four
# linear layers with dropout took 5 % more for each sample beyond 1,024 rows than up to there (decision 0178).
LINE_MARGIN: Final = 0.05
STRAIGHT: Final = 0.02  # how far from a line through two sizes a third may lie, as a share of its peak


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

    All above `fixed` is taken as growing with the batch: what of it does not (working memory, say) makes the answer smaller,
    never larger; below the measured peaks the largest batch that was seen to fit is named. From three sizes on, the line through
    the two largest is taken instead, if the third lies on it and most of the peak grows with the batch: small batches may have
    their peak elsewhere (in an optimizer's step), from which nothing follows for larger ones.
    How many times smaller activations get is taken as at the largest batch measured. At a larger one it is the same or better:
    sum(delta²) falls with the batch at least as fast as the square of the mean |momentum| does, so bounds get no tighter
    (decision 0072 has the formula). Raises ValueError where the figures allow no answer.
    """
    points = sorted({point.batch: point for point in taken}.values(), key=lambda point: point.batch)
    if not points:
        raise ValueError("no batch was measured")
    last = points[-1]
    if points[0].batch < 1:
        raise ValueError(f"a batch of {points[0].batch} samples cannot be measured; it must be at least 1")
    if last.peak <= last.fixed:
        raise ValueError(f"a batch of {last.batch} samples took {last.peak} bytes, no more than the {last.fixed} of any batch")
    slope = _line(points[-3:])
    if slope is None and limit < last.peak:
        return max((point.batch for point in points if point.peak <= limit), default=0)
    if slope is not None and limit < last.peak:
        return max(0, math.floor(last.batch + (limit - last.peak) / slope))
    one = _beyond(last, limit, (last.peak - last.fixed) / last.batch, MARGIN)
    return one if slope is None else max(one, _beyond(last, limit, slope, LINE_MARGIN))


def _line(points: Sequence[Taken]) -> float | None:
    """Bytes a sample on the line through the last two of three points; None where they are on no line that says anything."""
    if len(points) < 3:
        return None
    first, before, last = points
    slope = (last.peak - before.peak) / (last.batch - before.batch)
    start = last.peak - slope * last.batch
    straight = abs(start + slope * first.batch - first.peak) <= STRAIGHT * first.peak
    return slope if straight and 0 <= start <= last.peak / 2 else None


def _beyond(last: Taken, limit: int, slope: float, margin: float) -> int:
    return math.floor(last.batch + (limit - last.peak) / slope * (1 - margin))
