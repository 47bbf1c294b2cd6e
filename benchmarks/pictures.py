"""Pictures of what benchmarks.policies printed: a line per trace and network, a dot per policy without knowledge of durations.

    python -m benchmarks.policies > policies.md
    python -m benchmarks.pictures policies.md docs/pictures

Writes policies-completion.svg (average completion time over that of the best) and policies-queue.svg (p99 of the queue time over
tuned dally's). Both axes are logarithmic.
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

CLASS: Final = "none"
TO_BEAT: Final = "dally"
MARKS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
COLOURS: Final = ("#7f7f7f", "#bcbd22", "#1f77b4", "#ff7f0e", "#8c564b", "#d62728", "#9467bd", "#17becf", "#e377c2", "#2ca02c")
OURS: Final = "kompakt"
WIDTH: Final = 920
LEFT: Final = 250
TOP: Final = 60
ROW: Final = 24

Ratios = Mapping[str, Mapping[str, float]]  # by line of the picture, then by policy


def read(text: str) -> dict[str, dict[str, tuple[float, float]]]:
    """(average completion time, p99 of the queue time) in hours by column and policy, of the class without knowledge."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 10 and cells[2] == CLASS:
            found.setdefault(cells[0], {})[cells[1]] = (float(cells[3]), float(cells[5]))
    return found


def completion(found: Mapping[str, Mapping[str, tuple[float, float]]]) -> Ratios:
    """Average completion time over that of the best."""
    best = {column: min(jct for jct, _ in policies.values()) for column, policies in found.items()}
    return {column: {name: jct / best[column] for name, (jct, _) in policies.items()} for column, policies in found.items()}


def queue(found: Mapping[str, Mapping[str, tuple[float, float]]]) -> Ratios:
    """p99 of the queue time over tuned dally's."""
    return {
        column: {name: wait / policies[TO_BEAT][1] for name, (_, wait) in policies.items()} for column, policies in found.items()
    }


def picture(title: str, ratios: Ratios) -> str:
    """The SVG."""
    values = [value for policies in ratios.values() for value in policies.values()]
    low, high = min(values) / 1.1, max(values) * 1.1
    names = list(dict.fromkeys(name for policies in ratios.values() for name in policies))
    colours = dict(zip((name for name in names if name != OURS), COLOURS, strict=False)) | {OURS: "#000000"}
    height = TOP + ROW * len(ratios) + 30
    body = [f'<text x="10" y="18" font-weight="bold">{escape(title)}</text>', *_legend(colours), *_axis(low, high, height)]
    for number, (column, policies) in enumerate(ratios.items()):
        y = TOP + ROW * number + ROW / 2
        body.append(f'<text x="{LEFT - 12}" y="{y + 4:.0f}" text-anchor="end">{escape(column)}</text>')
        body.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.0f}" y2="{y:.0f}" stroke="#eee"/>')
        body += (_dot(_x(value, low, high), y, name, value, colours[name]) for name, value in policies.items() if name != OURS)
        body += (_dot(_x(value, low, high), y, name, value, colours[name]) for name, value in policies.items() if name == OURS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11" '
        f'role="img"><rect width="100%" height="100%" fill="#fff"/>{"".join(body)}</svg>\n'
    )


def _legend(colours: Mapping[str, str]) -> Iterable[str]:
    x = 10
    for name, colour in colours.items():
        yield f'<circle cx="{x + 5}" cy="36" r="5" fill="{colour}"/><text x="{x + 14}" y="40">{escape(name)}</text>'
        x += 26 + 7 * len(name)


def _axis(low: float, high: float, height: int) -> Iterable[str]:
    for mark in MARKS:
        if low <= mark <= high:
            x = _x(mark, low, high)
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 30}" stroke="{"#999" if mark == 1 else "#ddd"}"/>'
            yield f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{mark:g}x</text>'


def _dot(x: float, y: float, name: str, value: float, colour: str) -> str:
    radius = 5 if name == OURS else 4
    told = f"<title>{escape(name)}: {value:.3f}</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" fill-opacity="0.85">{told}</circle>'


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (WIDTH - 20 - LEFT) * math.log(value / low) / math.log(high / low)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(words)
    found = read(given.table.read_text("utf-8"))
    if not found:
        raise SystemExit(f"{given.table}: no rows of class {CLASS}; expected what python -m benchmarks.policies printed")
    pictures = {
        "policies-completion": ("Average completion time over that of the best policy (log scale)", completion(found)),
        "policies-queue": (f"p99 of the queue time over that of tuned {TO_BEAT} (log scale)", queue(found)),
    }
    for name, (title, ratios) in pictures.items():
        (given.folder / f"{name}.svg").write_text(picture(title, ratios), "utf-8")


if __name__ == "__main__":
    main()
