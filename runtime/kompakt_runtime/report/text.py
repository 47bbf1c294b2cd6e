"""What compression did, for people: a table by layer and a picture. No torch here: `kompakt run` shows files of processes."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.report.first_line import PeakReport, first_line
from kompakt_runtime.report.gradient_errors import GradientComparison


@dataclass(frozen=True)
class LayerReport:
    """plain, saved: bytes summed over backward passes; bound: the widest error bound so far; error: the largest seen where copies
    were compared with originals; sigma: standard deviation of the weight gradient's error as last measured, as a multiple of
    its target; first: what the model gives for it in the steps before the layer was measured. None: not known, or nothing is
    lossy there.
    """

    name: str
    plain: int
    saved: int
    outliers: int
    bound: float | None
    error: float | None
    sigma: float | None
    first: float | None

    @property
    def ratio(self) -> float:
        return self.plain / max(1, self.saved)


@dataclass(frozen=True)
class Report:
    """Sums over all steps so far. `ratio` is plain over saved bytes; `denominator` says of what. raw, raw_bytes: tensors that
    stayed as they are and their bytes, by reason. no_row: tensors and bytes that stayed as they are because nobody knows what the
    operation reads of them, by autograd node and slot. tried: rows of that table that the machine tried, with seconds, by what
    came of it ("" where they hold). peak: the most that was held at a time; comparison: with plain training's gradients, where
    `kompakt run --compare` asked for it.
    """

    mode: str
    target: str
    forwards: int
    steps: int
    plain_bytes: int
    saved_bytes: int
    held_bytes: int
    checked: int
    violations: int
    raw: Mapping[str, int]
    layers: tuple[LayerReport, ...]
    encoder: str
    batch: int = 0
    suggested_batch: int = 0
    overhead: Mapping[str, str] = field(default_factory=dict)
    away: Mapping[str, Any] = field(default_factory=dict)
    raw_bytes: Mapping[str, int] = field(default_factory=dict)
    no_row: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tried: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    peak: PeakReport | None = None
    comparison: GradientComparison | None = None
    denominator: str = export.DENOMINATOR

    @staticmethod
    def of(config: RuntimeConfig, figures: Figures) -> "Report":
        return Report.of_rows(config, [export.report(figures)])

    @staticmethod
    def of_rows(config: RuntimeConfig, rows: Iterable[export.Report]) -> "Report":
        """The sum of what processes wrote; counts of forwards and steps are of the busiest one."""
        rows = list(rows)
        total = {name: sum(row[name] for row in rows) for name in (*export.SUMS, "checked")}
        raw: Counter[str] = Counter()
        for row in rows:
            raw.update(row["raw"])
        return Report(
            config.mode,
            config.target,
            max((row["forwards"] for row in rows), default=0),
            max((row["steps"] for row in rows), default=0),
            total["plainBytes"],
            total["savedBytes"],
            total["heldBytes"],
            total["checked"],
            total["violations"],
            dict(raw.most_common()),
            _layers(rows),
            "; ".join(sorted({row["encoder"] for row in rows if row["encoder"]})),
            *_suggestion(rows),
            export.highest_overhead([row for row in rows if row["forwards"]]),
            export.in_host_memory(rows),
            export.kept_bytes(rows),
            _no_row(rows),
            _tried(rows),
            PeakReport.of(export.highest_peak(rows)),
            GradientComparison.of(row.get("compared", {}) for row in rows),
        )

    @property
    def ratio(self) -> float:
        return self.plain_bytes / self.saved_bytes if self.saved_bytes else 1.0

    def __str__(self) -> str:
        rows = (f"  {'  '.join(cells)}" for cells in self._cells())
        compared = self.comparison.lines() if self.comparison is not None else []
        return "\n".join((self.headline(), self.totals(), *rows, *self.notes(), *compared))

    def headline(self) -> str:
        """The most that was held at a time instead of what plain autograd holds, and the gradient's error as measured."""
        return first_line(self.peak, self.layers, self.target, self.comparison)

    def totals(self) -> str:
        return (
            f"{self.mode}, target {self.target}, {self.steps} optimizer steps: {self.ratio:.2f} times smaller"
            f" ({_megabytes(self.plain_bytes)} -> {_megabytes(self.saved_bytes)} MB, {self.denominator})"
        )

    def table(self) -> Any:
        """A rich.table.Table that fits 80 columns; needs the package rich."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        # Names end in kinds in brackets, which rich takes for styles.
        notes = escape("\n".join(self.notes()))
        table = Table(title=escape(self.totals()), caption=notes, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("layer", overflow="fold")
        # A number that is cut off looks like another one.
        for name in ("plain\nMB", "kept\nMB", "ratio", "error\nbound", "largest\nerror", "sigma /\ntarget", "outliers"):
            table.add_column(name, justify="right", no_wrap=True)
        for cells in self._cells():
            table.add_row(*map(escape, cells))
        return table

    def plot(self, path: str) -> None:
        """Writes ratio and error of each layer as PNG or SVG, by the file's name; needs the package matplotlib."""
        self.picture().savefig(path)

    def picture(self) -> Any:
        """The same as a matplotlib.figure.Figure. Bounds differ by powers of ten, so their axis is logarithmic."""
        from matplotlib.figure import Figure

        names = [layer.name for layer in self.layers]
        figure = Figure(figsize=(8, max(2.5, 1.2 + 0.3 * len(names))), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        left.barh(names, [layer.ratio for layer in self.layers])
        left.set_xlabel("plain bytes / kept bytes")
        left.invert_yaxis()
        right.set_xscale("log")
        for name, marker, size in (("bound", "|", 12), ("error", "o", 4)):
            known = [(getattr(layer, name), layer.name) for layer in self.layers if getattr(layer, name)]
            label = "error bound" if name == "bound" else "largest error seen"
            right.plot([value for value, _ in known], [layer for _, layer in known], marker, markersize=size, label=label)
        right.set_xlabel("unit of the layer's input")
        right.legend()
        figure.suptitle(textwrap.fill(self.headline(), 110), fontsize=8)
        return figure

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                layer.name,
                _megabytes(layer.plain),
                _megabytes(layer.saved),
                f"{layer.ratio:.2f}" if layer.plain else "-",
                *("-" if value is None else f"{value:.3g}" for value in (layer.bound, layer.error, layer.sigma)),
                str(layer.outliers),
            )
            for layer in self.layers
        ]

    def _kept(self, reason: str) -> str:
        nbytes = self.raw_bytes.get(reason)
        return f"{reason} {self.raw[reason]}" + (f" ({_megabytes(nbytes)} MB)" if nbytes else "")

    def notes(self) -> list[str]:
        """Sentences below the table: what stayed as it is and why, what was compared, which encoder worked."""
        notes = self.peak.sentences() if self.peak is not None else []
        notes += [f"kept as it is: {', '.join(map(self._kept, self.raw))}"] if self.raw else []
        if self.away:
            notes += _away(self.away)
        if self.checked:
            notes.append(f"{self.checked} elements compared with their originals, {self.violations} beyond what was promised")
        firsts = [(layer.first, layer.name) for layer in self.layers if layer.first is not None]
        if firsts:
            notes.append(
                "before a layer was measured, by the model: sigma at most {:.2f} of its target ({})".format(*max(firsts))
            )
        if self.suggested_batch:
            notes.append(f"a batch of {self.suggested_batch} would fit where {self.batch} ran, for each rank and forward pass")
        if "percent" in self.overhead:
            notes.append(
                f"a step takes {self.overhead['percent']} % longer than without compression (steps with and without, in turn)"
            )
        elif "codecPercent" in self.overhead:
            notes.append(f"packing and unpacking take {self.overhead['codecPercent']} % of a step's other time")
        if self.encoder:
            notes.append(f"encoder: {self.encoder}")
        if self.no_row:
            places = (f"{place} {_megabytes(nbytes)} MB in {tensors}" for place, (tensors, nbytes) in self.no_row.items())
            notes.append(f"kept because nobody wrote down what is read of it: {', '.join(places)}")
        if self.tried:
            notes.append(_trials(self.tried))
        return notes


def _away(away: Mapping[str, Any]) -> list[str]:
    late = f", {away['late']} of them fetched only when they were wanted" if away["late"] else ""
    stayed = ", ".join(f"{reason} {count}" for reason, count in away["reasons"].items())
    return [
        f"waited in host memory: {_megabytes(away['bytes'])} MB in {away['tensors']} tensors{late}",
        *([f"stayed on the device: {stayed}"] if stayed else []),
    ]


def _no_row(rows: list[export.Report]) -> dict[str, tuple[int, int]]:
    """Most bytes first."""
    tensors: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for row in rows:
        for place, (count, size) in row.get("noRow", {}).items():
            tensors[place] += count
            nbytes[place] += size
    return {place: (tensors[place], size) for place, size in nbytes.most_common()}


def _tried(rows: list[export.Report]) -> dict[str, tuple[tuple[str, float], ...]]:
    """Of several processes the longest time counts: each tries on its own."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for place, doubt, seconds in row.get("rowsTried", []):
            seen = found.setdefault(doubt, {})
            seen[place] = max(seconds, seen.get(place, 0.0))
    return {doubt: tuple(sorted(places.items())) for doubt, places in sorted(found.items())}


def _trials(tried: Mapping[str, tuple[tuple[str, float], ...]]) -> str:
    seconds = sum(seconds for places in tried.values() for _, seconds in places)
    words = f"tried on this machine: {len({place for places in tried.values() for place, _ in places})} rows of the table"
    doubts = (f"; {doubt}: {', '.join(place for place, _ in places)}" for doubt, places in tried.items() if doubt)
    return f"{words} in {seconds:.2f} s{''.join(doubts)}"


def _suggestion(rows: list[export.Report]) -> tuple[int, int]:
    found = export.smallest_batch([row for row in rows if row["forwards"]])
    return found.get("batch", 0), found.get("suggestedBatch", 0)


def _layers(rows: list[export.Report]) -> tuple[LayerReport, ...]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for name, layer in row["layers"].items():
            found.setdefault(name, []).append(layer)
    layers = (_layer(name, parts) for name, parts in found.items())
    # Of an input that is computed again the bytes stand in a row of their own, what was measured in that of the layer.
    return tuple(layer for layer in layers if layer.plain or f"{layer.name} [derived]" in found)


def _layer(name: str, parts: list[Mapping[str, Any]]) -> LayerReport:
    bounds = [part["bound"] for part in parts if part["bound"] is not None]
    errors = [part["error"] for part in parts if part["error"] is not None]
    sigmas = [part["sigma"] for part in parts if part["sigma"] is not None]
    firsts = [part["first"] for part in parts if part["first"] is not None]
    plain, saved, outliers = (sum(part[key] for part in parts) for key in ("plainBytes", "savedBytes", "outliers"))
    worst = (max(values, default=None) for values in (bounds, errors, sigmas, firsts))
    return LayerReport(name, plain, saved, outliers, *worst)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}"
