"""One HTML page without scripts: table, completion times, utilisation over time, and who held which GPU when."""

import html
from collections.abc import Sequence

from kompakt_simulator.cluster import ClusterShape
from kompakt_simulator.columns import PolicyRun, columns, label, reading, unit_for
from kompakt_simulator.figures import jct_ms
from kompakt_simulator.world import Stretch

_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
_CURVES = (*_COLOURS, "#000000")  # as many as there are policies
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 860, 280, 70, 50
_STEPS = 400  # points of a curve
_MOST_BARS = 6000  # of one Gantt picture; a larger run shows its longest stretches and says so
_CLOCK = "time since the trace began"
_STYLE = (
    "body{font:14px sans-serif;margin:2em;max-width:1000px}table{border-collapse:collapse}"
    "td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
    "svg{background:#fafafa}text{font:11px sans-serif}.legend span{margin-right:1.5em}"
)


def html_of(title: str, runs: Sequence[PolicyRun], shape: ClusterShape, note: str = "") -> str:
    """The whole page; `note` stands below the table."""
    heading = html.escape(title)
    gantts = "".join(f"<h2>Placement: {html.escape(run.policy)}</h2>{_gantt(run, shape)}" for run in runs)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{heading}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{heading}</h1>{_table(runs, note)}"
        f"<h2>How long jobs took</h2>{_cdf(runs)}"
        f"<h2>How many GPUs were held</h2>{_utilisation(runs, shape)}{gantts}</body></html>\n"
    )


def _table(runs: Sequence[PolicyRun], note: str) -> str:
    shown = columns(runs)
    head = "".join(f"<th>{column.name}{f' ({column.unit})' if column.unit else ''}</th>" for column in shown)
    lines = zip(map(label, runs), *(column.cells for column in shown), strict=True)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    words = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in (*reading(runs), note) if sentence)
    return f"<table><tr><th>policy</th>{head}</tr>{rows}</table>{words}"


def _cdf(runs: Sequence[PolicyRun]) -> str:
    times = {run.policy: sorted(jct_ms(done) / 1000 for done in run.outcome.finished) for run in runs}
    longest = max(values[-1] for values in times.values())
    curves = {}
    for name, values in times.items():
        picks = sorted({round(step * (len(values) - 1) / _STEPS) for step in range(_STEPS + 1)})
        curves[name] = [(values[index] / longest, (index + 1) / len(values)) for index in picks]
    return _lines(curves, longest, "time from submission to completion", "share of jobs completed")


def _utilisation(runs: Sequence[PolicyRun], shape: ClusterShape) -> str:
    longest = max(run.summary.makespan_s for run in runs)
    curves = {run.policy: _held(run.outcome.stretches, longest, shape.gpus) for run in runs}
    return _lines(curves, longest, _CLOCK, "share of GPUs held")


def _held(stretches: Sequence[Stretch], longest_s: float, gpus: int) -> list[tuple[float, float]]:
    """(share of time, share of GPUs held on average) per step."""
    width = longest_s * 1000 / _STEPS
    held = [0.0] * (_STEPS + 1)
    for each in stretches:
        number = each.gpus.bit_count()
        for step in range(int(each.start / width), min(_STEPS, int(each.end / width)) + 1):
            inside = min(each.end, (step + 1) * width) - max(each.start, step * width)
            held[step] += max(0.0, inside) * number
    return [((step + 0.5) / _STEPS, value / (width * gpus)) for step, value in enumerate(held[:_STEPS])]


def _lines(curves: dict[str, list[tuple[float, float]]], longest_s: float, along: str, up: str) -> str:
    """Curves over 0..1 in both directions; above them, where no curve runs, whose they are."""
    drawn, legend = [], []
    for number, (name, points) in enumerate(curves.items()):
        colour = _CURVES[number % len(_CURVES)]
        path = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in points)
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        legend.append(f'<span style="color:{colour}">&#9632; {html.escape(name)}</span>')
    marks = [(0, "0 %"), (0.5, "50 %"), (1, "100 %")]
    return f'<p class="legend">{" ".join(legend)}</p>' + _frame("".join(drawn), longest_s, marks, _HEIGHT, along, up)


def _gantt(run: PolicyRun, shape: ClusterShape) -> str:
    """One line per GPU; a stretch is a bar from begin to end, machines are parted by lines."""
    longest = run.summary.makespan_s * 1000
    bars = sorted(run.outcome.stretches, key=lambda each: each.start - each.end)[:_MOST_BARS]
    height = min(600, max(120, 4 * shape.gpus)) + _BOTTOM
    row = (height - _BOTTOM) / shape.gpus
    drawn = []
    for each in bars:
        x, width = _x(each.start / longest), max(0.3, (each.end - each.start) / longest * (_WIDTH - _LEFT))
        for first, number in _runs_of_bits(each.gpus):
            place = f'x="{x:.1f}" y="{first * row:.1f}" width="{width:.1f}" height="{number * row:.1f}"'
            drawn.append(f'<rect {place} fill="{_COLOURS[each.number % len(_COLOURS)]}" fill-opacity="0.8"/>')
    drawn += [
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{at * row:.1f}" y2="{at * row:.1f}" stroke="#999" stroke-width="0.4"/>'
        for at in shape.first
    ]
    left_out = len(run.outcome.stretches) - len(bars)
    note = f"<p>The {left_out} shortest stretches are left out of the picture.</p>" if left_out else ""
    marks = [(1.0, "GPU 0"), (0.0, f"GPU {shape.gpus - 1}")]
    return _frame("".join(drawn), longest / 1000, marks, height, _CLOCK, "which GPU") + note


def _runs_of_bits(gpus: int) -> list[tuple[int, int]]:
    """(first, number) of neighbouring GPUs."""
    found = []
    while gpus:
        first = (gpus & -gpus).bit_length() - 1
        number = (~(gpus >> first) & (gpus >> first) + 1).bit_length() - 1
        found.append((first, number))
        gpus &= ~((1 << number) - 1 << first)
    return found


def _frame(inside: str, longest_s: float, marks: Sequence[tuple[float, str]], height: int, along: str, up: str) -> str:
    """Both axes with their names, the lower one in the unit of time that fits."""
    unit = unit_for(longest_s)
    digits = 1 if longest_s < 20 * unit.seconds else 0
    texts = [
        f'<text x="{_LEFT - 4}" y="{(1 - at) * (height - _BOTTOM - 12) + 12:.0f}" text-anchor="end">{mark}</text>'
        for at, mark in marks
    ]
    anchors = ("middle", "middle", "middle", "middle", "end")
    ticks = [
        f'<text x="{_x(step / 4):.0f}" y="{height - 30}" text-anchor="{anchor}">'
        f"{longest_s * step / 4 / unit.seconds:,.{digits}f}</text>"
        for step, anchor in enumerate(anchors)
    ]
    middle = (height - _BOTTOM) // 2
    names = [
        f'<text x="{_x(0.5):.0f}" y="{height - 10}" text-anchor="middle">{along} ({unit.name})</text>',
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{up}</text>',
    ]
    return f'<svg width="{_WIDTH}" height="{height}" role="img">{inside}{"".join(texts + ticks + names)}</svg>'


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT)


def _y(share: float) -> float:
    return (1 - share) * (_HEIGHT - _BOTTOM)
