"""Error bounds as plain values that outlive a process: for a checkpoint, and for the next attempt of a job."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kompakt_runtime.bounds.layer import Average
from kompakt_runtime.bounds.nonlinear import Operation, Operations
from kompakt_runtime.bounds.site import Site
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.codec.rounding import Seeds

VERSION: Final = 1
MOST_ROWS: Final = 1 << 16
LARGEST: Final = 1 << 53  # whole numbers up to here survive every reader's floating point
LEAST: Final = 1e-9  # of a target
DIGITS: Final = 6  # more than was measured

Row = dict[str, Any]
Key = tuple[str, tuple[int, ...]]


def _text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 1024


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _positive(value: object) -> bool:
    return isinstance(value, float) and 1e-60 < value < 1e60


def _not_negative(value: object) -> bool:
    return value == 0.0 or _positive(value)


def _shape(value: object) -> bool:
    return isinstance(value, list) and len(value) <= 16 and all(map(_count, value))


def _target(value: object) -> bool:
    return isinstance(value, float) and LEAST < value <= 1


def _average(value: object) -> bool:
    """Average.state; with sums of nothing there is none."""
    return isinstance(value, list) and len(value) == 3 and _count(value[0]) and all(map(_positive, value[1:]))


Check = Callable[[object], bool]
LAYER: Final[Mapping[str, Check]] = {
    "name": _text, "shape": _shape, "steps": _count, "bound": _positive, "average": _average, "tolerance": _not_negative,
    "divisor": _positive, "lossless": lambda value: isinstance(value, bool),
}  # fmt: skip
OPERATION: Final[Mapping[str, Check]] = {"name": _text, "bound": _positive}


class Remembered:
    """What is known of all layers and operations now (`state`), and what is known from before of those that no forward pass
    has reached yet (`load`).

    changed: bounds are new since whoever writes them down set it back.
    """

    def __init__(self, sites: Sites, operations: Operations | None, seeds: Seeds, target: float) -> None:
        self._sites, self._operations, self._seeds, self._target = sites, operations, seeds, target
        self._layer_rows: dict[Key, Row] = {}
        self._operation_rows: dict[str, Row] = {}
        self.changed = False
        sites.made = self._layer_made
        if operations is not None:
            operations.made = self._operation_made

    def state(self) -> Row:
        """Lists, dictionaries, words and numbers. Layers that others have the name and shape of are left out: nobody could tell
        them apart again.
        """
        layers = [row for site in self._sites if (row := _layer_row(site)) is not None]
        rows = [{"name": one.name, "bound": _rounded(one.bound)} for one in self._operations or () if one.bound is not None]
        return {
            "version": VERSION,
            "target": self._target,
            "seeds": self._seeds.drawn,
            "layers": [*self._layer_rows.values(), *_alone(layers, _layer_key)],
            "operations": [*self._operation_rows.values(), *_alone(rows, _name)],
        }

    def load(self, state: object) -> None:
        """Takes over what `state` gave, with the same target or another. Raises ValueError that names what is wrong."""
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise ValueError(f"these are no error bounds of version {VERSION}, as state_dict() gives them")
        if not _target(state.get("target")):
            raise ValueError(f"target is {_short(state.get('target'))}; it must be a number above {LEAST} and at most 1")
        if not _count(state.get("seeds")):
            raise ValueError(f"seeds is {_short(state.get('seeds'))}; it must be a whole number up to {LARGEST}")
        layers, operations = (_rows(state, name, checks) for name, checks in (("layers", LAYER), ("operations", OPERATION)))
        self._seeds.drawn = max(self._seeds.drawn, state["seeds"])
        times = self._target / state["target"]
        self._layer_rows = {_layer_key(row): _wider(row, times) for row in _alone(layers, _layer_key)}
        self._operation_rows = {row["name"]: _wider(row, times) for row in _alone(operations, _name)}
        for site in self._sites:
            self._layer_made(site)
        for operation in self._operations or ():
            self._operation_made(operation)

    def _layer_made(self, site: Site) -> None:
        """A forward pass reached a layer for the first time. Its next step is measured, whatever its turn."""
        weight = site.weight()
        row = None if weight is None else self._layer_rows.pop((site.name, tuple(weight.shape)), None)
        if row is None or site.mode != "ErrorBounded":
            return
        site.steps, site.divisor, site.bound, site.tolerance = row["steps"], row["divisor"], row["bound"], row["tolerance"]
        site.average = Average.of(row["average"])
        site.mode = "Lossless" if row["lossless"] else site.mode
        site.observing = site.mode == "ErrorBounded"

    def _operation_made(self, operation: Operation) -> None:
        row = self._operation_rows.pop(operation.name, None)
        if row is not None:
            operation.bound = row["bound"]


def _layer_row(site: Site) -> Row | None:
    weight = site.weight()
    if site.bound is None or weight is None or not _average(average := site.average.state()):
        return None
    return {
        "name": site.name, "shape": list(weight.shape), "steps": site.steps, "bound": _rounded(site.bound),
        "average": [average[0], *map(_rounded, average[1:])], "tolerance": _rounded(site.tolerance),
        "divisor": _rounded(site.divisor), "lossless": site.mode == "Lossless",
    }  # fmt: skip


def _wider(row: Row, times: float) -> Row:
    """For a target so many times as large, to which bounds are in proportion."""
    wide: Row = {name: _rounded(row[name] * times) for name in ("bound", "tolerance") if name in row}
    if "average" in row:
        last, steps, squares = row["average"]
        wide["average"] = [last, steps, _rounded(squares / times**2)]
    return {**row, **wide}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _layer_key(row: Row) -> Key:
    return row["name"], tuple(row["shape"])


def _name(row: Row) -> str:
    return str(row["name"])


def _alone(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[Row]:
    """Those whose key no other has."""
    rows = list(rows)
    counted = Counter(map(key, rows))
    return [row for row in rows if counted[key(row)] == 1]


def _rows(state: Row, name: str, checks: Mapping[str, Check]) -> list[Row]:
    rows = state.get(name)
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise ValueError(f"{name} must be a list of at most {MOST_ROWS}, not {_short(rows)}")
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != checks.keys():
            raise ValueError(f"{name}[{number}] must have exactly {', '.join(checks)}, not {_short(row)}")
        for field, right in checks.items():
            if not right(row[field]):
                raise ValueError(f"{name}[{number}].{field} cannot be {_short(row[field])}")
    return rows


def _short(value: object) -> str:
    return repr(value)[:80]
