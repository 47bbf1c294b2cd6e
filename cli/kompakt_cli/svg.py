"""A link graph as SVG: GPUs on a circle by NUMA node, a line for each link coloured by its kind, a legend beside it.

    svg(graph, "dgx1-v100", {0: "job a"})  ->  text of one SVG file, with nothing to fetch and no script in it

GPUs behind NVSwitches are joined to a hub, as they are in the machine. Above 16 GPUs those with equal links are drawn
as one.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

from kompakt_cli.legend import MOST_DRAWN, LinkClass, alike, classes, facts, key_of, nearest, ranges
from kompakt_core.topology.flags import remarks
from kompakt_core.topology.graph import NVLINK_KINDS, LinkGraph, LinkKind

CENTRE: Final = (310.0, 345.0)
RADIUS: Final = 195.0
LEGEND_X: Final = 650
WIDTH: Final = 1040
GREENS: Final = ("#2b8a3e", "#74c47c", "#b5dfb8")
ORANGES: Final = ("#d9480f", "#ff922b", "#ffc078")
COLOURS: Final = {
    LinkKind.C2C: "#0c8599",
    LinkKind.PIX: "#1864ab",
    LinkKind.PXB: "#4dabf7",
    LinkKind.PHB: "#9775fa",
    LinkKind.NODE: "#adb5bd",
    LinkKind.SYS: "#d0d5da",
}
HOLDERS: Final = ("#f59f00", "#ae3ec9", "#1098ad", "#e64980", "#5c940d", "#3b5bdb")
BANDS: Final = ("#4263eb", "#e8590c", "#12b886", "#ae3ec9", "#fab005", "#15aabf", "#e64980", "#82c91e")
INK: Final = "#212529"
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spot:
    """A circle of the drawing: one GPU, or several whose links are equal."""

    gpus: tuple[int, ...]
    angle: float

    @property
    def at(self) -> Point:
        """Its centre."""
        return _polar(self.angle, RADIUS)


@dataclass(frozen=True, slots=True)
class Stroke:
    """How links of a class are drawn."""

    colour: str
    width: float
    dashed: bool


def svg(graph: LinkGraph, title: str, held: Mapping[int, str] | None = None, more: Sequence[str] = ()) -> str:
    """The drawing; `held` names the holder of a GPU index, `more` are further lines for the legend."""
    spots = _spots(graph, held or {})
    strokes = _strokes(graph)
    legend = list(_legend(graph, strokes, held or {}, [*facts(graph), *more]))
    height = max(690, 150 + 24 * len(legend))
    drawing = [
        *_bands(graph, spots),
        *_edges(graph, spots, strokes),
        *_nics(graph, spots),
        *_gpus(graph, spots, strokes, held or {}),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, Helvetica, Arial, sans-serif" fill="{INK}" role="img">',
        f"<title>{_plain(title)}: {graph.size} GPUs and what joins them</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="12" fill="#ffffff"/>',
        _text(32, 48, title, size=24, weight=600),
        _text(32, 74, _subtitle(graph), size=14, colour="#6c757d"),
        *drawing,
        *(f'<g transform="translate({LEGEND_X} {140 + 24 * row})">{line}</g>' for row, line in enumerate(legend)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _subtitle(graph: LinkGraph) -> str:
    models = sorted({gpu.model for gpu in graph.gpus if gpu.model})
    return f"{graph.size} GPUs" + (f", {', '.join(models)}" if models else "")


def _text(x: float, y: float, words: str, *, size: int = 14, weight: int = 400, colour: str = INK, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" font-weight="{weight}" fill="{colour}">{_plain(words)}</text>'


def _plain(words: str) -> str:
    """Words as XML may hold them."""
    return escape(_NO_XML.sub("\ufffd", words))


def _polar(angle: float, radius: float) -> Point:
    """The point at an angle (0 = right, clockwise) and distance from the middle of the drawing."""
    return CENTRE[0] + radius * math.cos(angle), CENTRE[1] + radius * math.sin(angle)


def _spots(graph: LinkGraph, held: Mapping[int, str]) -> list[Spot]:
    """GPUs clockwise from the left, one NUMA node after another with gaps between them."""
    groups = [(i,) for i in range(graph.size)] if graph.size <= MOST_DRAWN else alike(graph, held)
    groups.sort(key=lambda group: (graph.gpus[group[0]].numa_node, group[0]))
    nodes = [graph.gpus[group[0]].numa_node for group in groups]
    gaps = len(set(nodes)) if len(set(nodes)) > 1 else 0
    slot = 2 * math.pi / (len(groups) + 0.5 * gaps)
    spots, angle = [], math.pi + slot * (0.75 if gaps else 0.5)
    for position, group in enumerate(groups):
        if position and nodes[position] != nodes[position - 1]:
            angle += 0.5 * slot
        spots.append(Spot(tuple(group), angle))
        angle += slot
    return spots


def _strokes(graph: LinkGraph) -> dict[tuple[str, int], Stroke]:
    """Fast links are broad and dark, slow ones narrow and pale; shades tell classes of one kind apart."""
    found = classes(graph)
    top = max((entry.megabytes_per_second for entry in found.values()), default=1) or 1
    shades = {"nvlink": list(GREENS), "xgmi": list(ORANGES)}
    strokes = {}
    for key, entry in found.items():
        width = 1.2 + 4.3 * math.sqrt(entry.megabytes_per_second / top)
        family = "nvlink" if entry.kind in NVLINK_KINDS else "xgmi" if entry.kind is LinkKind.XGMI else ""
        colour = _next(shades[family]) if family else COLOURS[entry.kind]
        crowd = 0.6 if entry.pairs > 30 else 1.0
        strokes[key] = Stroke(colour, round(max(1.0, width * crowd), 1), entry.kind is LinkKind.SYS)
    return strokes


def _next(shades: list[str]) -> str:
    return shades.pop(0) if len(shades) > 1 else shades[0]


def _line(a: Point, b: Point, stroke: Stroke, title: str = "") -> str:
    dash = ' stroke-dasharray="5 5"' if stroke.dashed else ""
    place = f'x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"'
    said = f"<title>{_plain(title)}</title>" if title else ""
    return f'<line {place} stroke="{stroke.colour}" stroke-width="{stroke.width}" stroke-linecap="round"{dash}>{said}</line>'


def _edges(graph: LinkGraph, spots: Sequence[Spot], strokes: Mapping[tuple[str, int], Stroke]) -> Iterator[str]:
    """Slow links first, so that fast ones lie on top; links through switches as spokes of a hub."""
    pairs = [(graph.link(a.gpus[0], b.gpus[0]), a, b) for a, b in combinations(spots, 2)]
    for link, a, b in sorted(pairs, key=lambda pair: pair[0].megabytes_per_second):
        if link.kind is not LinkKind.NVSWITCH:
            title = f"GPU {ranges(a.gpus)} - GPU {ranges(b.gpus)}: {key_of(link)[0]}, {link.megabytes_per_second / 1000:.1f} GB/s"
            yield _line(a.at, b.at, strokes[key_of(link)], title)
    spokes: dict[Spot, LinkClass] = {}
    found = classes(graph)
    for link, a, b in sorted(pairs, key=lambda pair: pair[0].megabytes_per_second):
        if link.kind is LinkKind.NVSWITCH:
            spokes[a] = spokes[b] = found[key_of(link)]
    for spot, entry in spokes.items():
        stroke = strokes[entry.word, entry.megabytes_per_second]
        yield _line(spot.at, CENTRE, stroke, f"GPU {ranges(spot.gpus)}: {entry.lanes} lanes to the NVSwitches")
    if spokes:
        x, y = CENTRE
        yield f'<rect x="{x - 58}" y="{y - 24}" width="116" height="48" rx="12" fill="{GREENS[0]}"/>'
        yield _text(x, y + 5, "NVSwitch", size=16, weight=600, colour="#ffffff", anchor="middle")


def _bands(graph: LinkGraph, spots: Sequence[Spot]) -> Iterator[str]:
    """A band behind the GPUs of each NUMA node, with its name outside."""
    nodes = dict.fromkeys(graph.gpus[spot.gpus[0]].numa_node for spot in spots)
    for colour, node in zip(BANDS * (len(nodes) // len(BANDS) + 1), (node for node in nodes if node >= 0), strict=False):
        angles = [spot.angle for spot in spots if graph.gpus[spot.gpus[0]].numa_node == node]
        band = f'fill="none" stroke="{colour}" stroke-opacity="0.13" stroke-width="78"'
        middle = (angles[0] + angles[-1]) / 2 if len(nodes) > 1 else -math.pi / 2
        yield _arc(angles[0] - 0.02, angles[-1] + 0.02, band) if len(nodes) > 1 else _ring(band)
        x, y = _polar(middle, RADIUS + (84 if _cards(graph) else 62))
        yield _text(x, y + 5, f"NUMA {node}", size=14, weight=600, colour=colour, anchor=_anchor(middle))


def _arc(first: float, last: float, band: str) -> str:
    (x1, y1), (x2, y2) = _polar(first, RADIUS), _polar(last, RADIUS)
    way = f"M {x1:.1f} {y1:.1f} A {RADIUS} {RADIUS} 0 {int(last - first > math.pi)} 1 {x2:.1f} {y2:.1f}"
    return f'<path d="{way}" stroke-linecap="round" {band}/>'


def _ring(band: str) -> str:
    return f'<circle cx="{CENTRE[0]}" cy="{CENTRE[1]}" r="{RADIUS}" {band}/>'


def _anchor(angle: float) -> str:
    across = math.cos(angle)
    return "middle" if abs(across) < 0.5 else "start" if across > 0 else "end"


def _nics(graph: LinkGraph, spots: Sequence[Spot]) -> Iterator[str]:
    """Network cards outside the circle, joined to the GPUs that share a PCIe switch with them."""
    angles = {i: spot.angle for spot in spots for i in spot.gpus}
    for gpus, names in _cards(graph).items():
        middle = sum(angles[i] for i in gpus) / len(gpus)
        x, y = _polar(middle, RADIUS + 60)
        for i in gpus:
            yield _line(_polar(angles[i], RADIUS), (x, y), Stroke("#495057", 1.2, False))
        for row, name in enumerate(names):
            top = y - 10 + 20 * (row - (len(names) - 1) / 2)
            box = f'x="{x - 28:.1f}" y="{top:.1f}" width="56" height="19" rx="4"'
            yield f'<rect {box} fill="#f1f3f5" stroke="#495057"/>' + _text(x, top + 13.5, name, size=11, anchor="middle")


def _cards(graph: LinkGraph) -> dict[tuple[int, ...], list[str]]:
    """Names of network cards by the GPUs beside them; none where there are more GPUs than fit."""
    places: dict[tuple[int, ...], list[str]] = {}
    for nic in graph.nics if graph.size <= MOST_DRAWN else ():
        kind, gpus = nearest(nic)
        if kind in (LinkKind.PIX.value, LinkKind.PXB.value):
            places.setdefault(gpus, []).append(nic.name)
    return places


def _gpus(
    graph: LinkGraph, spots: Sequence[Spot], strokes: Mapping[tuple[str, int], Stroke], held: Mapping[int, str]
) -> Iterator[str]:
    """One circle each, red where something is broken, in the colour of the links inside where it stands for several."""
    fills = _fills(held)
    unhealthy = {i for remark in remarks(graph) if remark.degraded for i in remark.gpus}
    for spot in spots:
        first = spot.gpus[0]
        x, y = spot.at
        radius = 26 if len(spot.gpus) == 1 else 34
        inner = strokes[key_of(graph.link(*spot.gpus[:2]))].colour if len(spot.gpus) > 1 else INK
        fill = fills.get(held.get(first, ""), "#ffffff")
        edge = ("#e03131", 4) if unhealthy & set(spot.gpus) else (inner, 2 if inner is INK else 5)
        node = f", NUMA node {graph.gpus[first].numa_node}" if graph.gpus[first].numa_node >= 0 else ""
        said = f"GPU {ranges(spot.gpus)}{node}" + (f", held by {held[first]}" if first in held else "")
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{edge[0]}" stroke-width="{edge[1]}">'
        yield f"{circle}<title>{_plain(said)}</title></circle>"
        ink = "#ffffff" if first in held else INK
        yield _text(x, y + 6, ranges(spot.gpus), size=18 if len(spot.gpus) == 1 else 15, weight=600, colour=ink, anchor="middle")


def _fills(held: Mapping[int, str]) -> dict[str, str]:
    return {name: HOLDERS[i % len(HOLDERS)] for i, name in enumerate(dict.fromkeys(held.values()))}


def _legend(
    graph: LinkGraph, strokes: Mapping[tuple[str, int], Stroke], held: Mapping[int, str], lines: Sequence[str]
) -> Iterator[str]:
    """Rows of the legend, each drawn around (0, 0)."""
    yield _text(0, 5, "Links, GB/s one way", size=15, weight=600)
    for key, entry in classes(graph).items():
        through = " through switches" if entry.kind is LinkKind.NVSWITCH else ""
        name = "XGMI" if entry.kind is LinkKind.XGMI else entry.word
        pairs = f"{entry.pairs} pair{'s' if entry.pairs > 1 else ''}"
        said = f"{name}{through}: {entry.megabytes_per_second / 1000:.1f} ({pairs})"
        yield _line((0, 0), (42, 0), strokes[key]) + _text(56, 5, said)
    yield ""
    for name, colour in _fills(held).items():
        gpus = ranges(tuple(i for i in sorted(held) if held[i] == name))
        yield f'<circle cx="21" cy="0" r="9" fill="{colour}" stroke="{INK}"/>' + _text(56, 5, f"{name}: GPU {gpus}")
    if held:
        yield ""
    for line in lines:
        colour = "#e03131" if line.startswith("broken") else "#495057"
        for part in wrap(line, 52, subsequent_indent="   "):
            yield _text(0, 5, part, size=13, colour=colour)
