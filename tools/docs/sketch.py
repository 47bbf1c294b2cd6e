"""Parts of a small drawing as SVG: a card with a title and a description for screen readers, boxes, words, arrows, rows of GPUs.

A card is white with a rim, so that it reads the same on light and on dark pages.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

INK: Final = "#212529"
GREY: Final = "#5c6670"
FREE: Final = "#ffffff"
PANEL: Final = "#f1f3f5"
COLOURS: Final = ("#1864ab", "#b35c00", "#2b7a3e", "#8e2a9e")  # white words on each are readable
SIDE: Final = 22  # of a GPU's square
_ARROWHEAD = (
    f'<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>'
)


def card(width: int, height: int, title: str, description: str, parts: Iterable[str]) -> str:
    """The whole file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="system-ui, Helvetica, Arial, sans-serif" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
            _ARROWHEAD,
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="12" fill="#ffffff" stroke="#ced4da"/>',
            *parts,
            "</svg>\n",
        ]
    )


def described(drawing: str, description: str) -> str:
    """A drawing of the command line's with a description behind its title."""
    return drawing.replace("</title>", f"</title>\n<desc>{escape(description)}</desc>", 1)


def words(x: float, y: float, text: str, *, size: int = 14, bold: bool = False, colour: str = INK, anchor: str = "start") -> str:
    weight = 600 if bold else 400
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" font-weight="{weight}" fill="{colour}">{escape(text)}</text>'


def box(x: float, y: float, width: float, height: float, *, fill: str = PANEL, rim: str = "#adb5bd", dashed: bool = False) -> str:
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {size} rx="6" fill="{fill}" stroke="{rim}"{dash}/>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {ends} stroke="{INK}" stroke-width="1.6" marker-end="url(#head)"/>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GREY, width: float = 1) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="{width:g}"/>'


def gpus(x: float, y: float, holders: Sequence[str], row: int = 4) -> Iterable[str]:
    """GPUs of a machine in rows: `.` free, `-` held by another job, `r` reserved, a letter from A on for a worker or job."""
    for number, holder in enumerate(holders):
        left, top = x + (SIDE + 4) * (number % row), y + (SIDE + 4) * (number // row)
        yield box(left, top, SIDE, SIDE, fill=_fill(holder), rim=GREY, dashed=holder == "r")
        if holder.isupper():
            yield words(left + SIDE / 2, top + 16, holder, size=13, bold=True, colour="#ffffff", anchor="middle")


def _fill(holder: str) -> str:
    if holder.isupper():
        return COLOURS[ord(holder) - ord("A")]
    return {".": FREE, "-": "#adb5bd", "r": "#ffe8a3"}[holder]
