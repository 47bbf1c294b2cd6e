"""What compression did, for people: a table by layer and a picture. No torch here: `kompakt run` shows files of processes."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.figures.kept import KeptModules
from kompakt_runtime.report import notes
from kompakt_runtime.report.first_line import PeakReport, first_line
from kompakt_runtime.report.gradient_errors import GradientComparison
from kompakt_runtime.report.rows import HEADER, LayerReport, aligned, chosen, layers_of, megabytes


@dataclass(frozen=True)
class Report:
    """Sums over all steps so far. `ratio` is plain over saved bytes; `denominator` says of what. raw, raw_bytes: tensors that
    stayed as they are and their bytes, by reason; kept: the same by module. no_row: tensors and bytes that stayed as they are
    because nobody knows what the operation reads of them, by autograd node and slot. tried: rows of that table that the machine
    tried, with seconds, by what came of it ("" where they hold). peak: the most that was held at a time; comparison: with plain
    training's gradients, where `kompakt run --compare` asked for it. answers: sentences to what was asked for or might be missed.
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
    kept: KeptModules = field(default_factory=KeptModules)
    no_row: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tried: notes.Tried = field(default_factory=dict)
    peak: PeakReport | None = None
    comparison: GradientComparison | None = None
    answers: tuple[str, ...] = ()
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
        trained = [row for row in rows if row["forwards"]]
        suggestion = export.smallest_batch(trained)
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
            layers_of(rows),
            "; ".join(sorted({row["encoder"] for row in rows if row["encoder"]})),
            suggestion.get("batch", 0),
            suggestion.get("suggestedBatch", 0),
            overhead=export.highest_overhead(trained),
            away=export.in_host_memory(rows),
            raw_bytes=export.kept_bytes(rows),
            kept=KeptModules.of(row.get("keptModules", {}) for row in rows),
            no_row=notes.no_row_of(rows),
            tried=notes.tried_of(rows),
            peak=PeakReport.of(export.highest_peak(rows)),
            comparison=GradientComparison.of(row.get("compared", {}) for row in rows),
            answers=tuple(_answers(config, trained)),
        )

    @property
    def ratio(self) -> float:
        return self.plain_bytes / self.saved_bytes if self.saved_bytes else 1.0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, everything: bool = True) -> list[str]:
        """The report in lines of any length, for files and pipes. everything: also rows of layers that hardly count."""
        rows, left_out = chosen(self.layers, everything)
        table = aligned(("layer", *HEADER), [layer.cells() for layer in rows]) if rows else []
        compared = self.comparison.lines() if self.comparison is not None else []
        return [self.headline(), self.totals(), "", *table, *left_out, "", *self.notes(everything), *compared]

    def headline(self) -> str:
        """The most that was held at a time instead of what plain autograd holds, and the gradient's error as measured."""
        return first_line(self.peak, self.layers, self.target, self.comparison)

    def totals(self) -> str:
        bounded = self.mode == "ErrorBounded" or any(layer.bound is not None for layer in self.layers)
        target = f", target {self.target}" if bounded else ""
        return (
            f"{self.mode}{target}, {self.steps} optimizer steps: {self.ratio:.2f} times smaller"
            f" ({megabytes(self.plain_bytes)} -> {megabytes(self.saved_bytes)} MB, {self.denominator})"
        )

    def table(self, everything: bool = True) -> Any:
        """A rich.table.Table that fits 80 columns; needs the package rich."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        rows, left_out = chosen(self.layers, everything)
        # Names end in kinds in brackets, which rich takes for styles.
        below = escape("\n".join([*left_out, *self.notes(everything)]))
        table = Table(title=escape(self.totals()), caption=below, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("layer", overflow="fold")
        # A number that is cut off looks like another one.
        for name in HEADER:
            table.add_column(name, justify="right", no_wrap=True)
        for layer in rows:
            table.add_row(*map(escape, layer.cells()))
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
        left.barh(names, [0.0 if layer.derived else layer.ratio for layer in self.layers])
        left.set_xlabel("plain bytes / kept bytes (no bar: computed again)")
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

    def notes(self, everything: bool = True) -> list[str]:
        """Sentences below the table: what stayed as it is and why, what was compared, which encoder worked."""
        found = self.peak.sentences() if self.peak is not None else []
        found += notes.kept(self.raw, self.raw_bytes, self.kept, everything)
        found += notes.waited(self.away)
        if self.checked:
            found.append(f"{self.checked} elements compared with their originals, {self.violations} beyond what was promised")
        found += notes.in_the_first_step(self.layers, self.target)
        found += self.answers
        if self.encoder:
            found.append(f"encoder: {self.encoder}")
        return found + notes.unknown(self.no_row) + notes.trials(self.tried)


def _answers(config: RuntimeConfig, trained: list[export.Report]) -> list[str]:
    """trained: what processes wrote that had a forward pass."""
    if not trained:
        return []
    steps = max(row["steps"] for row in trained)
    matched = {pattern for row in trained for pattern in row.get("overridesMatched", [])}
    counts = [(needed, had) for needed, had in (row.get("overheadSteps", (0, 0)) for row in trained)]
    return [
        *notes.unmatched(config.overrides, matched),
        *notes.batch(trained, config, steps),
        *notes.budget(export.tightest_budget(trained), config),
        *notes.time_of_a_step(export.highest_overhead(trained), counts),
    ]
