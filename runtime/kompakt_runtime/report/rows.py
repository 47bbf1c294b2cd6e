"""Rows of a report, one for each layer or kind of operation in it: summed over processes, chosen, and as cells of a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

DERIVED: Final = " [derived]"  # behind a layer's name in figures: what is computed again instead of kept
HEADER: Final = ("plain\nMB", "kept\nMB", "ratio", "error\nbound", "largest\nerror", "sigma /\ntarget", "outliers")
MOST: Final = 15
LEAST_BYTES: Final = 5_000  # below, a row would show 0.00 MB

Cells = tuple[str, ...]


@dataclass(frozen=True)
class LayerReport:
    """plain, saved: bytes summed over backward passes; again: those of plain that are not kept but computed again; bound: the
    widest error bound so far; error: the largest seen where copies were compared with originals; sigma: standard deviation of the
    weight gradient's error as last measured, as a multiple of its target; first: what the model gives for it in the steps before
    the layer was measured. None: not known, or nothing is lossy there.
    """

    name: str
    plain: int
    saved: int
    outliers: int
    bound: float | None
    error: float | None
    sigma: float | None
    first: float | None
    again: int = 0

    @property
    def ratio(self) -> float:
        return self.plain / max(1, self.saved)

    @property
    def derived(self) -> bool:
        """All of it is computed again, so no ratio says anything."""
        return 0 < self.plain == self.again

    @property
    def of_weights(self) -> bool:
        """Of a layer's own input. Rows of operations end in their kind; they say what an operation did of what it may do, which
        is not the layer's gradient.
        """
        return not self.name.endswith("]")

    def cells(self) -> Cells:
        ratio = "computed again" if self.derived else f"{self.ratio:.2f}" if self.plain else "-"
        figures = ("-" if value is None else f"{value:.3g}" for value in (self.bound, self.error, self.sigma))
        return (self.name, megabytes(self.plain), megabytes(self.saved), ratio, *figures, str(self.outliers))


def layers_of(rows: Iterable[Mapping[str, Any]]) -> tuple[LayerReport, ...]:
    """From what processes wrote. What is computed again of a layer's input is part of the layer's row."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for name, layer in row["layers"].items():
            again = layer["plainBytes"] if name.endswith(DERIVED) else 0
            found.setdefault(name.removesuffix(DERIVED), []).append({**layer, "again": again})
    layers = (_layer(name, parts) for name, parts in found.items())
    return tuple(layer for layer in layers if layer.plain)


def _layer(name: str, parts: list[Mapping[str, Any]]) -> LayerReport:
    plain, saved, outliers, again = (
        sum(part[key] for part in parts) for key in ("plainBytes", "savedBytes", "outliers", "again")
    )
    bound, error, sigma, first = (_worst(parts, key) for key in ("bound", "error", "sigma", "first"))
    return LayerReport(name, plain, saved, outliers, bound, error, sigma, first, again)


def _worst(parts: list[Mapping[str, Any]], key: str) -> float | None:
    return max((part[key] for part in parts if part[key] is not None), default=None)


def chosen(layers: Iterable[LayerReport], everything: bool) -> tuple[list[LayerReport], list[str]]:
    """The rows to show, most kept bytes first, and what is said of those that are not."""
    rows = sorted(layers, key=lambda layer: (-layer.saved, -layer.plain, layer.name))
    if everything:
        return rows, []
    large = [row for row in rows if max(row.plain, row.saved) >= LEAST_BYTES]
    small, more, notes = len(rows) - len(large), large[MOST:], []
    if more:
        kept, again = sum(row.saved for row in more), sum(row.derived for row in more)
        computed = f", {again} of them computed again" if again else ""
        notes.append(f"{len(more)} more rows, which keep {megabytes(kept)} MB together{computed}; all of them: --all")
    if small:
        notes.append(f"{small} {'row' if small == 1 else 'rows'} below 0.005 MB left out")
    return large[:MOST], notes


def aligned(header: Sequence[str], rows: Sequence[Cells]) -> list[str]:
    """Lines of a table for files and pipes: each row on a line of its own, whole, numbers to the right."""
    lines = [tuple(cell.replace("\n", " ") for cell in header), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}"
