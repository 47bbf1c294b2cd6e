"""A small picture of a link graph for the terminal: who is joined to whom, and who holds what.

    draw(graph, {0: "digits-0", 4: "digits-0"})  ->  something rich can print

It is the matrix of links. The diagonal shows a letter for each holder, and links inside one holder's set stand in
brackets, so that it reads the same without colours; under it one line per holder.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kompakt_cli.legend import MOST_DRAWN, alike, classes, key_of, ranges, short
from kompakt_core.topology.graph import FABRIC_KINDS, LinkGraph

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
FREE = "."


@dataclass(frozen=True, slots=True)
class PictureHolder:
    """Who holds GPUs: a letter and a colour for the picture."""

    name: str
    letter: str
    colour: str
    linked: bool  # whether links inside its set are marked


def draw(graph: LinkGraph, held: Mapping[int, str] | None = None, *, others: Collection[str] = ()) -> RenderableType:
    """The picture. `held` names the holder of a GPU index, in the order of the legend; GPUs not in it are free.

    Links inside the sets of holders in `others` are not marked: their GPUs are taken, that is all. Fits 80 columns;
    above 16 GPUs those with equal links share a line.
    """
    names = dict.fromkeys((held or {}).values())
    holders = {
        name: PictureHolder(name, ascii_uppercase[i % len(ascii_uppercase)], COLOURS[i % len(COLOURS)], name not in others)
        for i, name in enumerate(names)
    }
    by_gpu = {i: holders[name] for i, name in (held or {}).items()}
    return Group((_matrix if graph.size <= MOST_DRAWN else _folded)(graph, by_gpu), _legend(graph, by_gpu))


def _matrix(graph: LinkGraph, held: Mapping[int, PictureHolder]) -> Table:
    table = Table(box=None, padding=(0, 0), show_header=False, pad_edge=False)
    width = 4 if graph.size > 10 else 7
    for _ in range(graph.size + 1):
        table.add_column(justify="right", min_width=width, no_wrap=True)
    table.add_row(Text("GPU "), *(_name(i, held) for i in range(graph.size)))
    for a in range(graph.size):
        table.add_row(_name(a, held), *(_cell(graph, a, b, held) for b in range(graph.size)))
    return table


def _folded(graph: LinkGraph, held: Mapping[int, PictureHolder]) -> Table:
    """One line for each group of equal GPUs: who they are, who holds them, and their links, fastest first."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, pad_edge=False, header_style="bold")
    for title in ("GPU", "", "LINKS (GPUs joined by them)"):
        table.add_column(title, no_wrap=title != "LINKS (GPUs joined by them)")
    for group in alike(graph, held):
        first = group[0]
        others: dict[tuple[str, int], list[int]] = {}
        for other in range(graph.size):
            if other != first:
                others.setdefault(key_of(graph.link(first, other)), []).append(other)
        words = [
            f"{word} {speed / 1000:.1f}: {ranges(tuple(gpus))}" for (word, speed), gpus in sorted(others.items(), key=_speed)
        ]
        mark = Text(held[first].letter, f"bold {held[first].colour}") if first in held else Text(FREE, "dim")
        table.add_row(Text(ranges(group), "bold"), mark, "  ".join(words))
    return table


def _speed(item: tuple[tuple[str, int], list[int]]) -> int:
    return -item[0][1]


def _name(index: int, held: Mapping[int, PictureHolder]) -> Text:
    return Text(f"{index} ", f"bold {held[index].colour}" if index in held else "bold")


def _cell(graph: LinkGraph, a: int, b: int, held: Mapping[int, PictureHolder]) -> Text:
    if a == b:
        return Text(f"{held[a].letter} ", f"bold {held[a].colour}") if a in held else Text(f"{FREE} ", "dim")
    link = graph.link(a, b)
    fabric = link.kind in FABRIC_KINDS
    if a in held and held[a].linked and held[a] == held.get(b):
        # Machines of more GPUs have no room for brackets.
        word = f"[{short(link)}]" if graph.size <= 10 else f"{short(link)} "
        return Text(word, f"{'bold ' if fabric else ''}{held[a].colour}")
    return Text(f"{short(link)} ", "bold" if fabric else "dim")


def _legend(graph: LinkGraph, held: Mapping[int, PictureHolder]) -> Text:
    words = [f"{found.word} {found.megabytes_per_second / 1000:.1f}" for found in classes(graph).values()]
    text = Text("GB/s one way: " + "  ".join(words), "dim") if words else Text()
    for holder in dict.fromkeys(held.values()):
        gpus = ",".join(str(i) for i in sorted(held) if held[i] == holder)
        text.append(f"\n{holder.letter} = {holder.name}: GPU {gpus}", f"not dim {holder.colour}")
    return text
