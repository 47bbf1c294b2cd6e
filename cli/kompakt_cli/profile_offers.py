"""Priced hardware for people and programs: the table, what to take, and what to measure to be sure."""

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from kompakt_cli.output import columns
from kompakt_cli.profile_explain import explained
from kompakt_core.errors import InvalidInput
from kompakt_core.profile.measurements import Hardware, Measured
from kompakt_core.profile.offers import MOST_BATCHES, PricedPlace, Recommendation, offers, recommend
from kompakt_core.profile.predictions import StepEstimate, Unpredictable, size_of
from kompakt_core.profile.prices import Price


@dataclass(frozen=True, slots=True)
class PriceQuestion:
    """What a user asks of a price table: a training of so many batches of one device, within so many hours."""

    prices: Sequence[Price] = ()
    batches: int = 0
    budget_hours: float | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidInput for what cannot be answered."""
        if not self.prices:
            self._needs_prices()
        elif not self.batches:
            raise InvalidInput("--prices needs --batches: how many batches of one device the whole training takes")
        if not 0 <= self.batches <= MOST_BATCHES:
            raise InvalidInput(f"--batches {self.batches}: expected a number from 1 to {MOST_BATCHES}, such as 80000")
        if self.budget_hours is not None and not 0 < self.budget_hours < math.inf:
            raise InvalidInput(
                f"--budget-hours {self.budget_hours:g}: expected hours above 0, such as 8; leave it out for no limit"
            )

    def _needs_prices(self) -> None:
        given = {"--batches": self.batches, "--budget-hours": self.budget_hours is not None, "--explain": self.explain}
        for option in (name for name, value in given.items() if value):
            raise InvalidInput(f"{option} needs --prices FILE: a table with machine, gpus, price_per_hour")

    @property
    def limit_hours(self) -> float:
        return math.inf if self.budget_hours is None else self.budget_hours

    def answer(self, measured: Sequence[Measured]) -> list[PricedPlace]:
        """All lines of the table, best first; none where there is no table."""
        return offers(self.prices, measured, self.batches, self.limit_hours) if self.prices else []


def to_json(question: PriceQuestion, offered: Sequence[PricedPlace]) -> dict[str, Any]:
    """The lines, and what to take; nothing without a table: that is the profile as a job gets it. `hours` and `cost` are the most
    that they can be.
    """
    if not question.prices:
        return {}
    found = recommend(offered, question.limit_hours)
    first = found.fastest
    return {
        "offers": [_line(one, question.limit_hours) for one in offered],
        "budgetHours": question.budget_hours,
        "recommended": None if found.cheapest is None else _line(found.cheapest, question.limit_hours),
        "smallestBudgetHours": None if first is None else first.hours,
    }


def _line(one: PricedPlace, limit_hours: float) -> dict[str, Any]:
    known = {name: getattr(one, name) for name in ("hours", "cost", "least_hours", "least_cost", "in_time")}
    measure = "" if one.measured else _surer(one)
    return {**asdict(one.price), **known, "basis": basis(one), "chance": _in_time(one, limit_hours), "measure": measure}


def render(question: PriceQuestion, offered: Sequence[PricedPlace]) -> Iterator[RenderableType]:
    """The table, its arithmetic on request, the recommendation, and which commands would tell more."""
    if not offered:
        return
    yield ""
    yield _table(offered, question.limit_hours)
    if question.explain:
        yield from explained(offered, question.batches)
    yield from _advice(recommend(offered, question.limit_hours))
    for one in offered:
        if isinstance(one.step, Unpredictable):
            yield f"nothing is known of {place(one)} ({one.step}); on it: {how_to_measure(one.price.hardware)}"


def _table(offered: Sequence[PricedPlace], limit_hours: float) -> Table:
    heads = ("machine", "gpus", "price/h", "hours", "cost", "in time", "why")
    table = columns(*heads, right=["gpus", "price/h", "hours", "cost"])
    for one in offered:
        size = size_of(one.price.hardware).removesuffix("s").removesuffix(" GPU")
        hours, cost = span(one.least_hours, one.hours), span(one.least_cost, one.cost)
        table.add_row(one.price.machine, size, f"{one.price.per_hour:g}", hours, cost, _in_time(one, limit_hours), basis(one))
    return table


def span(least: float | None, most: float | None) -> str:
    """One figure, or both ends of a range."""
    if least is None or most is None:
        return "-"
    ends = list(dict.fromkeys((f"{least:.2f}", f"{most:.2f}")))
    return "..".join(ends)


def _in_time(one: PricedPlace, limit_hours: float) -> str:
    if one.least_hours is None:
        return "-"
    return "yes" if one.in_time else "perhaps" if one.least_hours <= limit_hours else "no"


def basis(one: PricedPlace) -> str:
    """What the hours of a line rest on."""
    if isinstance(one.step, Unpredictable):
        return str(one.step)
    told = "measured" if one.step.measured else f"predicted from {_sources(one.step)}"
    return told if one.step.real_data else f"{told}, data from memory"


def _sources(step: StepEstimate) -> str:
    return " and ".join(dict.fromkeys(map(size_of, step.sources)))


def _advice(found: Recommendation) -> Iterator[str]:
    best, first = found.cheapest, found.fastest
    if best is not None:
        at_most = "at most " if best.predicted else ""
        yield f"cheapest in time: {place(best)}, {at_most}{best.hours:.2f} h, {best.cost:.2f} ({basis(best)})"
        if best.predicted:
            yield f"  to be sure: {_surer(best)}"
    elif first is not None and first.hours is not None:
        at_most = "at most " if first.predicted else ""
        yield f"nothing is sure to be in time; the fastest is {place(first)}: {at_most}{first.hours:.2f} h, {first.cost:.2f}"
        yield f"  the smallest budget that works: --budget-hours {rounded_up(first.hours)}"
    else:
        yield "nothing measured is in the price table, so nothing can be recommended"
    for one in found.perhaps:
        told = f"{span(one.least_hours, one.hours)} h, {span(one.least_cost, one.cost)}"
        yield f"perhaps better: {place(one)}, {told}; to know: {_surer(one)}"


def _surer(one: PricedPlace) -> str:
    """What makes a measurement of a prediction."""
    if isinstance(one.step, StepEstimate) and one.price.hardware in one.step.sources and one.price.machines > 1:
        return "let the training run there for a while: on several machines profile times steps with data from memory only"
    return how_to_measure(one.price.hardware)


def rounded_up(hours: float) -> str:
    """Two digits after the point, and never less than what is needed."""
    shown = f"{hours:.2f}"
    return shown if float(shown) >= hours else f"{hours + 0.01:.2f}"


def place(one: PricedPlace) -> str:
    """Size and name."""
    return f"{size_of(one.price.hardware)} of {one.price.machine}"


def how_to_measure(hardware: Hardware) -> str:
    """The command that measures it; for several machines with the rank and the address still to fill in."""
    stem = "-".join(map(str, (re.sub(r"[^\w.]+", "-", hardware.machine).strip("-"), *_numbers(hardware))))
    several = f"--nodes {hardware.machines} --node-rank RANK --master HOST:PORT " if hardware.machines > 1 else ""
    words = f"--machine {shlex.quote(hardware.machine)} {several}--devices {hardware.each}"
    return f"kompakt profile {words} -o json -- python train.py > {stem}.json"


def _numbers(hardware: Hardware) -> tuple[int, ...]:
    return (hardware.machines, hardware.each) if hardware.machines > 1 else (hardware.gpus,)
