"""The cheapest place that finishes a training in time (Stash's recommendation: cost = training time x price)."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kompakt_core.errors import InvalidInput

COLUMNS: Final = ("machine", "gpus", "price_per_hour")
MOST_GPUS: Final = 1 << 20
MOST_PRICE: Final = 1e9
MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Price:
    """What `gpus` GPUs of a machine cost for an hour, in whatever currency."""

    machine: str
    gpus: int
    per_hour: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one step on so many GPUs of a machine; each GPU takes one batch a step."""

    machine: str
    gpus: int
    step_seconds: float


@dataclass(frozen=True, slots=True)
class PricedPlace:
    """A line of the table with what the training would take there; None: nobody measured it."""

    price: Price
    hours: float | None
    cost: float | None
    in_time: bool


def offers(
    prices: Iterable[Price], measured: Iterable[Measured], batches: int, budget_hours: float = math.inf
) -> list[PricedPlace]:
    """All lines, best first: those in time by cost, then those that are late by hours, then those not measured.

    `batches`: how many batches of one GPU the whole training takes; n GPUs need batches / n steps. Ties end on hours,
    machine and GPUs. Raises InvalidInput for numbers that are not above 0.
    """
    if batches < 1 or not budget_hours > 0:
        raise InvalidInput(f"{batches} batches in {budget_hours} hours; expected both above 0")
    seconds = {(one.machine, one.gpus): one.step_seconds for one in measured}
    return sorted((_offer(price, seconds.get((price.machine, price.gpus)), batches, budget_hours) for price in prices), key=_rank)


def cheapest(found: Sequence[PricedPlace]) -> PricedPlace | None:
    """The first in time; None where nothing is."""
    return found[0] if found and found[0].in_time else None


def _offer(price: Price, step_seconds: float | None, batches: int, budget_hours: float) -> PricedPlace:
    if step_seconds is None:
        return PricedPlace(price, None, None, False)
    if not 0 < step_seconds < math.inf:
        raise InvalidInput(f"{price.machine}: a step of {step_seconds} s; expected a time above 0")
    hours = math.ceil(batches / price.gpus) * step_seconds / 3600
    return PricedPlace(price, hours, hours * price.per_hour, hours <= budget_hours)


def _rank(one: PricedPlace) -> tuple[object, ...]:
    names = (one.price.machine, one.price.gpus)
    if one.hours is None or one.cost is None:
        return (2, 0.0, 0.0, *names)
    return (0, one.cost, one.hours, *names) if one.in_time else (1, one.hours, one.cost, *names)


def parse_prices(text: str, name: str) -> list[Price]:
    """A price table: CSV with the columns machine, gpus, price_per_hour, or YAML: a list of objects with these keys.

    `name` stands for the file in messages. Raises InvalidInput that names the line or entry, and what would be right.
    """
    if len(text) > MOST_BYTES:
        raise InvalidInput(f"{name}: more than 1 MiB; expected a table of prices")
    head = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    as_csv = [cell.strip() for cell in head.split(",")] == list(COLUMNS)
    rows = _csv_rows(text, name) if as_csv else _yaml_rows(text, name)
    prices: dict[tuple[str, int], Price] = {}
    for where, row in rows:
        price = _price(row, where)
        if (price.machine, price.gpus) in prices:
            raise InvalidInput(f"{where}: {price.machine} with {price.gpus} GPUs stands above already; expected each once")
        prices[price.machine, price.gpus] = price
    if not prices:
        raise InvalidInput(f"{name}: no prices; expected lines of {', '.join(COLUMNS)}")
    return list(prices.values())


def _csv_rows(text: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[str, dict[str, Any]]] = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#") or cells == list(COLUMNS):
                continue
            if len(cells) != len(COLUMNS):
                raise InvalidInput(f"{name}, line {reader.line_num}: {len(cells)} fields; expected {', '.join(COLUMNS)}")
            rows.append((f"{name}, line {reader.line_num}", dict(zip(COLUMNS, cells, strict=True))))
    except csv.Error as error:
        raise InvalidInput(f"{name}, line {reader.line_num}: {error}; expected {', '.join(COLUMNS)}") from error
    return rows


def _yaml_rows(text: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    wanted = f"expected CSV with the columns {', '.join(COLUMNS)}, or a YAML list of objects with these keys"
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name}: {' '.join(str(error).split())[:200]}; {wanted}") from error
    if not isinstance(found, list):
        raise InvalidInput(f"{name}: got {type(found).__name__}; {wanted}")
    for index, row in enumerate(found):
        if not isinstance(row, dict) or set(row) != set(COLUMNS):
            raise InvalidInput(f"{name}, entry {index + 1}: got {row!r:.80}; expected exactly {', '.join(COLUMNS)}")
    return [(f"{name}, entry {index + 1}", row) for index, row in enumerate(found)]


def _price(row: dict[str, Any], where: str) -> Price:
    machine = row["machine"]
    if not isinstance(machine, str) or not machine:
        raise InvalidInput(f"{where}: machine is {machine!r:.40}; expected a name")
    gpus, per_hour = _number(row["gpus"]), _number(row["price_per_hour"])
    if gpus is None or not 1 <= gpus <= MOST_GPUS or gpus != int(gpus):
        raise InvalidInput(f"{where}: gpus is {row['gpus']!r:.40}; expected a whole number from 1")
    if per_hour is None or not 0 <= per_hour <= MOST_PRICE:
        raise InvalidInput(f"{where}: price_per_hour is {row['price_per_hour']!r:.40}; expected a number from 0 up")
    return Price(machine, int(gpus), per_hour)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
