"""The arithmetic behind each line of the price table: steps, seconds of a step, hours, cost."""

from collections.abc import Iterator, Sequence

from kompakt_core.profile.measurements import StepPart
from kompakt_core.profile.offers import PricedPlace
from kompakt_core.profile.predictions import StepEstimate, size_of


def explained(offered: Sequence[PricedPlace], batches: int) -> Iterator[str]:
    """A few lines for each place whose time is known. Each result is computed from unrounded numbers."""
    for one in offered:
        if isinstance(one.step, StepEstimate):
            yield "\n" + "\n".join(_lines(one, one.step, batches))
    yield ""


def _lines(one: PricedPlace, step: StepEstimate, batches: int) -> Iterator[str]:
    yield f"{size_of(one.price.hardware)} of {one.price.machine}, {'measured' if step.measured else 'predicted'}"
    rounded = ", rounded up" if batches % one.price.gpus else ""
    yield f"  steps = {batches} batches / {one.price.gpus} devices = {one.steps}{rounded}"
    if step.measured:
        yield from _sums(one, "", step.most, step.most_seconds)
        return
    yield from _sums(one, "at least, ", step.least, step.least_seconds)
    yield from _sums(one, "at most, ", step.most, step.most_seconds)


def _sums(one: PricedPlace, end: str, parts: Sequence[StepPart], seconds: float) -> Iterator[str]:
    hours = one.steps * seconds / 3600
    yield f"  {end}step = {' + '.join(f'{part.seconds:.6g} s ({part.what})' for part in parts)} = {seconds:.6g} s"
    yield f"  {end}hours = {one.steps} steps x {seconds:.6g} s / 3600 = {hours:.4f}"
    yield f"  {end}cost = {hours:.4f} h x {one.price.per_hour:g} per hour = {hours * one.price.per_hour:.2f}"
