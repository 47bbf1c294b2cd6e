"""Draws what benchmarks.backlog.changes printed: milliseconds a change, by waiting gangs and by nodes.

    python -m benchmarks.backlog.changes --gangs 100,200,500,1000,2000,5000 > gangs.txt
    python -m benchmarks.backlog.changes --nodes 200,500,1000,2000,5000 > nodes.txt
    python -m benchmarks.backlog.curves gangs.txt nodes.txt docs/pictures/backlog-changes.svg

All axes are logarithmic.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 380, 220  # of a panel
LEFT, TOP = 60, 50
COLOURS: Final = {"taken": "#1f77b4", "freed": "#d62728"}
TEXTS: Final = {"taken": "GPUs are taken that no gang could use", "freed": "a pod of four GPUs ends"}


def read(text: str, column: int) -> dict[str, Points]:
    """Points by kind of change; `column`: 0 nodes, 1 gangs."""
    rows = [line.replace(")", "").split() for line in text.splitlines()[1:] if line.strip()]
    return {kind: [(float(row[column]), float(row[2 + 2 * number])) for row in rows] for number, kind in enumerate(COLOURS)}


def scaled(value: float, low: float, high: float, length: float) -> float:
    return length * math.log(value / low) / math.log(high / low)


def panel(title: str, curves: Mapping[str, Points], left: float, low: float, high: float) -> Iterator[str]:
    """One plot; `low`, `high`: milliseconds at its bottom and top."""
    xs = sorted({x for points in curves.values() for x, _ in points})

    def place(x: float, y: float) -> str:
        return f"{left + scaled(x, xs[0], xs[-1], WIDTH):.0f},{TOP + HEIGHT - scaled(y, low, high, HEIGHT):.0f}"

    for x in xs:
        at = left + scaled(x, xs[0], xs[-1], WIDTH)
        yield f'<line x1="{at:.0f}" x2="{at:.0f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="#eee"/>'
        yield f'<text x="{at:.0f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{x:,.0f}</text>'
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        at = TOP + HEIGHT - scaled(10.0**power, low, high, HEIGHT)
        yield f'<line x1="{left}" x2="{left + WIDTH}" y1="{at:.0f}" y2="{at:.0f}" stroke="#ddd"/>'
        yield f'<text x="{left - 6}" y="{at + 4:.0f}" text-anchor="end">{10.0**power:g} ms</text>'
    for kind, points in curves.items():
        line = " ".join(place(x, y) for x, y in points)
        yield f'<polyline points="{line}" fill="none" stroke="{COLOURS[kind]}" stroke-width="2"/>'
        yield from (
            f'<circle cx="{x}" cy="{y}" r="3" fill="{COLOURS[kind]}"/>' for x, y in (at.split(",") for at in line.split())
        )
    yield f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">{title}</text>'


def picture(by_gangs: Mapping[str, Points], by_nodes: Mapping[str, Points]) -> str:
    """The SVG."""
    values = [y for curves in (by_gangs, by_nodes) for points in curves.values() for _, y in points]
    low, high = 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))
    body = ['<text x="10" y="18" font-weight="bold">Processor time of the planner for one change</text>']
    for number, kind in enumerate(COLOURS):
        x = 10 + 260 * number
        body.append(f'<circle cx="{x + 5}" cy="34" r="5" fill="{COLOURS[kind]}"/><text x="{x + 14}" y="38">{TEXTS[kind]}</text>')
    body += panel("waiting gangs, on 1,000 nodes", by_gangs, LEFT, low, high)
    body += panel("nodes, with 1,000 waiting gangs", by_nodes, 2 * LEFT + WIDTH + 20, low, high)
    size = f'width="{2 * (LEFT + WIDTH) + 60}" height="{TOP + HEIGHT + 50}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" role="img">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(body)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gangs", type=Path)
    parser.add_argument("nodes", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    given.picture.write_text(picture(read(given.gangs.read_text(), 1), read(given.nodes.read_text(), 0)))


if __name__ == "__main__":
    main()
