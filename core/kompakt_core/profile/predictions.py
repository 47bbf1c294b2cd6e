"""Seconds of a step on hardware that nobody measured, between what was measured on less and on more of it.

Stash (ICDCS 2023) takes a step for computing plus stalls, and measures the stalls; kompakt's model for other sizes is this:

1. Each GPU takes the same batch a step, so computing stays. More GPUs on a machine, or more machines with equally many, only add
   stalls (assumed): a step takes at least what the largest of all smaller places took, at most what the smallest larger one took.
2. Beyond the places on several machines, up to twice their GPUs on equally many machines: at most the step of one machine with
   as many GPUs each, and what the network added to the step of one machine of the measured ones, which grows with what a ring
   moves past each GPU, 2 (n - 1) / n of the gradients (Patarasuk and Yuan, JPDC 2009). That is not Stash's network stall, which
   is smaller: it compares with one machine that has all the GPUs, and so a larger interconnect stall.
3. Ends are those of the fastest and the slowest quarter of the measured steps: noise widens the range.

Where neither holds, nothing is predicted; nor where more GPUs took shorter steps, which contradicts the first sentence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kompakt_core.profile.measurements import Hardware, Measured, StepPart

FURTHEST: Final = 2  # times the GPUs on which a network stall was measured: as far as rule 2 goes


class Unpredictable(StrEnum):
    """Why nothing is known of a step on some hardware."""

    NO_PROFILE = "no profile of this machine"
    BELOW = "not predictable: nothing as small was measured"
    BEYOND = "not predictable: beyond what was measured"
    CONTRADICTED = "not predictable: more GPUs took shorter steps"


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """Seconds of a step, as parts that sum to the least and to the most; measured: both are the mean, and one and the same.

    `sources`: the hardware whose runs were used. `real_data`: the most (or the mean) is that of
    data as the training gets them, not from memory.
    """

    measured: bool
    least: tuple[StepPart, ...]
    most: tuple[StepPart, ...]
    sources: tuple[Hardware, ...]
    real_data: bool = False

    @property
    def least_seconds(self) -> float:
        return sum(part.seconds for part in self.least)

    @property
    def most_seconds(self) -> float:
        return sum(part.seconds for part in self.most)


@dataclass(frozen=True, slots=True)
class _Most:
    parts: tuple[StepPart, ...]
    sources: tuple[Hardware, ...]
    real_data: bool

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)


def estimate(hardware: Hardware, found: Iterable[Measured]) -> StepEstimate | Unpredictable:
    """What a step takes there: as measured (a profile of it, or the last run `one`), else the range of the model above."""
    own = [one for one in found if one.machine == hardware.machine]
    if not own:
        return Unpredictable.NO_PROFILE
    exact = sorted((one for one in own if one.hardware == hardware and one.whole), key=lambda one: one.run != "one")
    if exact:
        parts = exact[-1].parts or (StepPart(exact[-1].step_seconds, f"run {exact[-1].run}"),)
        return StepEstimate(True, parts, parts, (hardware,), exact[-1].real_data)
    return _between(hardware, own)


def _between(hardware: Hardware, own: Sequence[Measured]) -> StepEstimate | Unpredictable:
    smaller = [one for one in own if one.hardware.within(hardware)]
    if not smaller:
        return Unpredictable.BELOW
    larger = [_most_of(one) for one in own if hardware.within(one.hardware) and (one.whole or one.data)]
    larger = larger or _with_network(hardware, own)
    if not larger:
        return Unpredictable.BEYOND
    low, high = max(smaller, key=lambda one: one.least), min(larger, key=lambda one: one.seconds)
    if low.least > high.seconds:
        return Unpredictable.CONTRADICTED
    least = (StepPart(low.least, f"fastest quarter of {named(low)}"),)
    return StepEstimate(False, least, high.parts, (low.hardware, *high.sources), high.real_data)


def _most_of(one: Measured) -> _Most:
    """The most that a step can take where a run was made; with the prep stall where that run had its data from memory."""
    data = [one.data] if one.data and not one.whole else []
    parts = (StepPart(one.most, f"slowest quarter of {named(one)}"), *data)
    return _Most(parts, (one.hardware,), one.real_data or bool(data))


def _with_network(hardware: Hardware, own: Sequence[Measured]) -> list[_Most]:
    """Rule 2, for each network stall that it may be applied to."""
    single = Hardware(hardware.machine, hardware.each)
    alone = [_most_of(one) for one in own if one.machines == 1 and one.whole and single.within(one.hardware)]
    if hardware.machines == 1 or not alone:
        return []
    base = min(alone, key=lambda one: one.seconds)
    wide = [one for one in own if one.machines == hardware.machines and one.gpus < hardware.gpus <= FURTHEST * one.gpus]
    added = [(one, part) for one in wide for part in _network(one, hardware.gpus, own)]
    return [_Most((*base.parts, part), (*base.sources, one.hardware), base.real_data) for one, part in added]


def _network(one: Measured, gpus: int, own: Sequence[Measured]) -> list[StepPart]:
    """The most that the network adds on so many GPUs by a run on fewer of them; none where no step of one machine is known."""
    single = Hardware(one.machine, one.hardware.each)
    inside = [other for other in own if other.run != "warm" and other.hardware.within(single)]  # the run's data were from memory
    if not inside:
        return []
    base, factor = max(inside, key=lambda other: other.least), ring_share(gpus) / ring_share(one.gpus)
    what = f"network: slowest quarter of {named(one)} - fastest of {named(base)}, x {factor:.4g}"
    return [StepPart(max(0.0, one.most - base.least) * factor, what)]


def ring_share(gpus: int) -> float:
    """What a ring all-reduce moves past each GPU, in sizes of what is reduced; 0 for one GPU."""
    return 2 * (gpus - 1) / gpus


def named(one: Measured) -> str:
    """The run, and on what it was made."""
    return f"run {one.run} on {size_of(one.hardware)}"


def size_of(hardware: Hardware) -> str:
    """The size in words: 2 x 4 GPUs are those of two machines."""
    if hardware.machines > 1:
        return f"{hardware.machines} x {hardware.each} GPUs"
    return "1 GPU" if hardware.gpus == 1 else f"{hardware.gpus} GPUs"
