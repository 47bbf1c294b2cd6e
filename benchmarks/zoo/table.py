"""Rows of the zoo as text for people, each beside what the project aims at."""

import statistics
from collections.abc import Iterable, Iterator
from typing import Final

from benchmarks.zoo.gradients import ALL, LayerError
from benchmarks.zoo.models import AIMS
from benchmarks.zoo.rows import Row

EXCESS, SLOWER = 1.5, 2.5  # at most: see Held.excess; the median model's Times.slower
BUSY: Final = 2.0  # from this load on other work ran beside, and times are marked
# Smaller gradients are what rounding leaves where mathematics says zero, such as the bias of attention's keys.
SMALL: Final = 1e-6  # of the length of all gradients together
MEGABYTE = 1e6
HEAD: Final = (
    "model", "type", "plain MB", "kept MB", "first step", "warm-up", "after", "aim", "runtime says", "held MB", "peak MB",
    "step", "gradient", "worst layer", "losses",
)  # fmt: skip
LEGEND: Final = """\
- plain, kept: live bytes after the pass forward and the loss, above those before (weights, gradients, optimizer and batch are not
  in it), of plain training and with compression after six optimizer steps, on the same batch.
- first step, warm-up, after: plain bytes over kept bytes in the first step, over the six first together, and after them; all that
  plain autograd keeps is the denominator. "missed": below the aim.
- runtime says: its own ratio in the step after, and which share of the plain bytes that ratio speaks of.
- held: what the runtime held when the pass backward began -> the most at a time, its working memory (1 to 2 MB) left out, and
  their difference in operands of the operation that reads most (aim: 1.5).
- peak: the most live bytes of a pass, plain -> compressed, after the six steps and in the worst of them.
- step: processor time of a plain step, and how many times it a compressed one takes, one measured step in 32 in it; "busy" where
  the machine's load was 2 or more, so that other work ran beside.
- gradient: ||g' - g|| / ||g|| over 20 batches from the same weights, / how far batches differ, ||g - mean g|| / ||g||; of all
  weights together and of the worst one.
- losses: of these batches, those whose loss was the same to the last bit."""


def aim(row: Row) -> float:
    return AIMS[row.dtype][row.family]


def worst(row: Row) -> LayerError | None:
    layers = [layer for layer in row.gradients.layers if layer.name != ALL and layer.size > SMALL]
    return max(layers, key=lambda layer: layer.error, default=None)


def cells(row: Row) -> tuple[str, ...]:
    """In the order of HEAD."""
    return (
        row.model,
        row.dtype,
        megabytes(row.kept.plain),
        megabytes(row.kept.after),
        f"{row.kept.plain / row.kept.first:.2f}",
        f"{row.ratio_with_warm:.2f}",
        f"{row.ratio:.2f}",
        f"{aim(row):.1f}" if row.ratio >= aim(row) else f"{aim(row):.1f} missed",
        f"{row.told.plain / max(1, row.told.saved):.2f} of {row.told.plain / row.kept.plain:.0%}",
        _held(row),
        f"{megabytes(row.peaks.plain)} -> {megabytes(row.peaks.after)}, {megabytes(row.peaks.warm)}",
        f"{1000 * row.times.plain:.0f} ms x {row.times.slower:.2f}" + (" (busy)" if row.times.load >= BUSY else ""),
        *_gradients(row),
        f"{row.gradients.equal} of {row.gradients.batches}",
    )


def megabytes(nbytes: float) -> str:
    return f"{nbytes / MEGABYTE:.1f}"


def _held(row: Row) -> str:
    missed = " missed" if row.held.excess > EXCESS else ""
    return f"{megabytes(row.held.begins)} -> {megabytes(row.held.most)}, {row.held.excess:.2f}{missed}"


def _gradients(row: Row) -> tuple[str, str]:
    everything = next((layer for layer in row.gradients.layers if layer.name == ALL), None)
    most = worst(row)
    return _shares(everything) if everything else "-", f"{_shares(most)} {most.name}" if most else "-"


def _shares(layer: LayerError) -> str:
    return f"{layer.error:.2%} / {layer.spread:.0%}"


def table(rows: Iterable[Row]) -> Iterator[str]:
    """In Markdown."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for row in rows:
        yield f"| {' | '.join(cells(row))} |"


def summary(rows: list[Row]) -> Iterator[str]:
    """How many reach each aim."""
    if not rows:
        return
    yield f"- kept: {sum(row.ratio >= aim(row) for row in rows)} of {len(rows)} reach their aim"
    within = sum(row.held.excess <= EXCESS for row in rows)
    yield f"- held beyond what is kept: {within} of {len(rows)} within {EXCESS} largest operands"
    quiet = [row.times.slower for row in rows if row.times.load < BUSY]
    if quiet:
        yield f"- step: the median of {len(quiet)} models takes {statistics.median(quiet):.2f} times as long (aim: {SLOWER})"
    alike = sum(row.gradients.equal == row.gradients.batches for row in rows)
    yield f"- losses: {alike} of {len(rows)} with all of them the same to the last bit"


def readers(row: Row, most: int = 8) -> Iterator[str]:
    """Which operations read what plain autograd keeps for this model, most first: where something is to be won."""
    yield f"\n{row.model}, {row.dtype}: what plain autograd keeps, by the operations that read it"
    for names, nbytes in list(row.readers.items())[:most]:
        yield f"- {nbytes / MEGABYTE:.2f} MB, {nbytes / row.counted:.0%}: {names}"


def layers(row: Row) -> Iterator[str]:
    """Each weight's gradient, in Markdown."""
    yield f"\n{row.model}, {row.dtype}: gradients by weight"
    yield "| weight | share of all | error | worst batch | spread between batches | common to all batches |"
    yield f"|{'---|' * 6}"
    for layer in row.gradients.layers:
        shares = (layer.size, layer.error, layer.worst, layer.spread, layer.common)
        yield f"| {layer.name} | {' | '.join(f'{share:.3%}' for share in shares)} |"
