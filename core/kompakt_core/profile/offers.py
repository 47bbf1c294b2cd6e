"""The cheapest hardware that finishes a training in time (Stash's recommendation: cost = training time x price). Pure.

What was predicted is judged by the most that it can take: a recommendation holds at both ends of its range.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.profile.measurements import Measured, distinct
from kompakt_core.profile.predictions import StepEstimate, Unpredictable, estimate
from kompakt_core.profile.prices import Price

MOST_BATCHES: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class PricedPlace:
    """A line of the table with what the training would take there, in hours and in the table's currency.

    `hours` and `cost`: the most that they can be, `least_hours` and `least_cost` the least; equal where the step was measured,
    None where nothing is known of it, which `step` then explains. `in_time`: also at the most.
    """

    price: Price
    step: StepEstimate | Unpredictable
    steps: int
    hours: float | None
    cost: float | None
    least_hours: float | None
    least_cost: float | None
    in_time: bool

    @property
    def measured(self) -> bool:
        return isinstance(self.step, StepEstimate) and self.step.measured

    @property
    def predicted(self) -> bool:
        return isinstance(self.step, StepEstimate) and not self.step.measured


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`cheapest`: of the lines that are in time for sure; `fastest`: of all whose time is known, by the most it can be.

    `perhaps`: predicted lines that may be in time and cheaper than `cheapest`, so that measuring them may pay.
    """

    cheapest: PricedPlace | None
    fastest: PricedPlace | None
    perhaps: tuple[PricedPlace, ...]


def offers(
    prices: Iterable[Price], measured: Iterable[Measured], batches: int, budget_hours: float = math.inf
) -> list[PricedPlace]:
    """All lines, best first: those in time by cost, then those that may be late by hours, then those that nothing is known of.

    `batches`: how many batches of one GPU the whole training takes; n GPUs need batches / n steps. Ties end on hours, then
    measured before predicted, machine and size. Raises InvalidInput for numbers that are not above 0, and for places of which
    two profiles say different things.
    """
    if not 1 <= batches <= MOST_BATCHES or not budget_hours > 0:
        raise InvalidInput(f"{batches} batches in {budget_hours} hours; expected both above 0 (batches: up to 2^50)")
    known = list(measured)
    distinct(known)
    return sorted((_offer(price, known, batches, budget_hours) for price in prices), key=_rank)


def cheapest(found: Sequence[PricedPlace]) -> PricedPlace | None:
    """The first in time; None where nothing is."""
    return found[0] if found and found[0].in_time else None


def recommend(found: Sequence[PricedPlace], budget_hours: float = math.inf) -> Recommendation:
    """What to take of `found`, which offers() ranked for the same budget, and what else may be worth a measurement."""
    best = cheapest(found)
    known = [one for one in found if one.hours is not None]
    fastest = min(known, key=lambda one: one.hours or 0.0, default=None)
    return Recommendation(best, fastest, tuple(one for one in known if one is not best and _may_win(one, best, budget_hours)))


def _may_win(one: PricedPlace, best: PricedPlace | None, budget_hours: float) -> bool:
    if not one.predicted or one.least_hours is None or one.least_cost is None or one.least_hours > budget_hours:
        return False
    return best is None or best.cost is None or one.least_cost < best.cost


def _offer(price: Price, known: Iterable[Measured], batches: int, budget_hours: float) -> PricedPlace:
    step, steps = estimate(price.hardware, known), -(-batches // price.gpus)
    if isinstance(step, Unpredictable):
        return PricedPlace(price, step, steps, None, None, None, None, False)
    least, most = steps * step.least_seconds / 3600, steps * step.most_seconds / 3600
    return PricedPlace(price, step, steps, most, most * price.per_hour, least, least * price.per_hour, most <= budget_hours)


def _rank(one: PricedPlace) -> tuple[object, ...]:
    names = (not one.measured, one.price.machine, one.price.gpus, one.price.machines)
    if one.hours is None or one.cost is None:
        return (2, 0.0, 0.0, *names)
    return (0, one.cost, one.hours, *names) if one.in_time else (1, one.hours, one.cost, *names)
