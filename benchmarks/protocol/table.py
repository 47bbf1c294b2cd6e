"""The table of the protocol in Markdown: a line for each column, then each bar with the columns that fail it."""

from collections.abc import Iterator
from typing import Final

from benchmarks.protocol.bars import (
    BARS,
    COMPLETION,
    FOURFOLD,
    QUEUE,
    RIGHT,
    SHORTEST_FIRST,
    TWICE,
    JudgedBar,
    Runs,
    judged,
    mean_of,
)
from benchmarks.protocol.columns import BY_NAME, Part
from benchmarks.protocol.entries import OURS

_HEADS: Final = ("column", "traces", "kompakt, h", "best other", "ratio", "p99 queue: best other", "ratio", "declared / sjf")
_REST: Final = ("declared / none", "2x wrong / none", "4x wrong / none")


def lines(runs: Runs) -> Iterator[str]:
    """The whole report. `runs`: by column, at least one each; a column without traces does not stand in it."""
    found = {bar.name: judged(bar, runs) for bar in BARS}
    heads = (*_HEADS, *_REST)
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for name in runs:
        yield f"| {' | '.join(_cells(name, runs, found))} |"
    yield ""
    yield "| bar | mean over columns | seen, held out, generated | fail | doubtful |"
    yield "|---|---|---|---|---|"
    for one in found.values():
        yield f"| {' | '.join(_summary(one))} |"


def _cells(name: str, runs: Runs, found: dict[str, JudgedBar]) -> Iterator[str]:
    hours = sum(run.figures[OURS].avg_jct_s for run in runs[name]) / len(runs[name]) / 3600
    completion, queue = (found[bar.name].ratios[name] for bar in (COMPLETION, QUEUE))
    yield from (name, str(len(runs[name])), f"{hours:.1f}")
    yield from (completion.rival, _ratio(found[COMPLETION.name], name), queue.rival, _ratio(found[QUEUE.name], name))
    yield from (_ratio(found[bar.name], name) for bar in (SHORTEST_FIRST, RIGHT, TWICE, FOURFOLD))


def _ratio(judgement: JudgedBar, name: str) -> str:
    """Bold where it fails, with its interval where there is one."""
    each = judgement.ratios[name]
    text = f"**{each.ratio:.3f}**" if name in judgement.failing else f"{each.ratio:.3f}"
    return text if each.low == each.high else f"{text} ({each.low:.3f} to {each.high:.3f})"


def _summary(one: JudgedBar) -> Iterator[str]:
    bar = one.bar
    asked = "" if bar.mean is None else f"mean at most {bar.mean:g}, "
    yield f"{bar.name}: {asked}each at most {bar.most:g}"
    yield f"{one.mean:.3f}" if one.mean_held else f"**{one.mean:.3f}**"
    yield ", ".join(_by_part(one))
    yield f"**{len(one.failing)}**: {', '.join(one.failing)}" if one.failing else "none"
    yield ", ".join(one.doubtful) or "none"


def _by_part(one: JudgedBar) -> Iterator[str]:
    for part in Part:
        some = [ratio for name, ratio in one.ratios.items() if BY_NAME[name].part is part]
        yield f"{mean_of(some, one.bar.floored):.3f}" if some else "-"
