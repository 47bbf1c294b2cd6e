"""Price tables of users: what an hour on some hardware costs. Pure."""

import csv
import io
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kompakt_core.errors import InvalidInput
from kompakt_core.profile.measurements import Hardware

COLUMNS: Final = ("machine", "gpus", "price_per_hour")
MACHINES: Final = "machines"  # one column more, where prices of several machines together are in the table
MOST_GPUS: Final = 1 << 20
MOST_PRICE: Final = 1e9
MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Price:
    """What `gpus` GPUs cost for an hour, in whatever currency: all of them, on so many machines of that name."""

    machine: str
    gpus: int
    per_hour: float
    machines: int = 1

    @property
    def hardware(self) -> Hardware:
        return Hardware(self.machine, self.gpus, self.machines)


def parse_prices(text: str, name: str) -> list[Price]:
    """A price table: CSV with the columns machine, gpus, price_per_hour, or YAML: a list of objects with these keys.

    A fourth, `machines`, may follow: the GPUs and the price are then those of so many machines together (default 1).

    `name` stands for the file in messages. Raises InvalidInput that names the line or entry, and what would be right.
    """
    if len(text) > MOST_BYTES:
        raise InvalidInput(f"{name}: more than 1 MiB; expected a table of prices")
    text = text.removeprefix("\ufeff")  # spreadsheets begin their CSV with it
    head = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    heads = tuple(cell.strip() for cell in head.split(","))
    rows = _csv_rows(text, name, heads) if heads in (COLUMNS, (*COLUMNS, MACHINES)) else _yaml_rows(text, name)
    prices: dict[Hardware, Price] = {}
    for where, row in rows:
        price = _price(row, where)
        if price.hardware in prices:
            raise InvalidInput(f"{where}: {price.hardware} stands above already; expected each once")
        prices[price.hardware] = price
    if not prices:
        raise InvalidInput(f"{name}: no prices; expected lines of {', '.join(COLUMNS)}")
    return list(prices.values())


def _csv_rows(text: str, name: str, heads: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[str, dict[str, Any]]] = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#") or tuple(cells) == heads:
                continue
            if len(cells) != len(heads):
                raise InvalidInput(f"{name}, line {reader.line_num}: {len(cells)} fields; expected {', '.join(heads)}")
            rows.append((f"{name}, line {reader.line_num}", dict(zip(heads, cells, strict=True))))
    except csv.Error as error:
        raise InvalidInput(f"{name}, line {reader.line_num}: {error}; expected {', '.join(heads)}") from error
    return rows


def _yaml_rows(text: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    wanted = f"expected CSV with the columns {', '.join(COLUMNS)} (and perhaps {MACHINES}), or a YAML list with these keys"
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name}: {' '.join(str(error).split())[:200]}; {wanted}") from error
    if found is None:
        return []
    if not isinstance(found, list):
        got = repr(found[:60]) if isinstance(found, str) else type(found).__name__
        raise InvalidInput(f"{name}: got {got}; {wanted}")
    for index, row in enumerate(found):
        if not isinstance(row, dict) or set(row) - {MACHINES} != set(COLUMNS):
            keys = f"{', '.join(COLUMNS)}, and perhaps {MACHINES}"
            raise InvalidInput(f"{name}, entry {index + 1}: got {row!r:.80}; expected {keys}")
    return [(f"{name}, entry {index + 1}", row) for index, row in enumerate(found)]


def _price(row: dict[str, Any], where: str) -> Price:
    machine = row["machine"]
    if not isinstance(machine, str) or not machine:
        raise InvalidInput(f"{where}: machine is {machine!r:.40}; expected a name")
    gpus, per_hour = _number(row["gpus"]), _number(row["price_per_hour"])
    machines = _number(row.get(MACHINES, 1))
    if gpus is None or not 1 <= gpus <= MOST_GPUS or gpus != int(gpus):
        raise InvalidInput(f"{where}: gpus is {row['gpus']!r:.40}; expected a whole number from 1 to {MOST_GPUS}")
    if machines is None or not 1 <= machines <= gpus or machines != int(machines) or gpus % machines:
        raise InvalidInput(f"{where}: {row[MACHINES]!r:.40} machines for {gpus:g} GPUs; expected a number that divides the GPUs")
    if per_hour is None or not 0 <= per_hour <= MOST_PRICE:
        price = row["price_per_hour"]
        raise InvalidInput(f"{where}: price_per_hour is {price!r:.40}; expected a number from 0 to {MOST_PRICE:g}")
    return Price(machine, int(gpus), per_hour, int(machines))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
