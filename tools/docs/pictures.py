"""`python -m tools.docs.pictures`: draws the pictures of docs/concepts.md anew. A test holds the files to what this draws."""

import math
from collections.abc import Iterator
from typing import Final

from kompakt_cli.svg import svg
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.machines import machine
from tools.docs.repository import ROOT
from tools.docs.sketch import COLOURS, GREY, INK, arrow, box, card, described, gpus, line, words

FOLDER: Final = "docs/pictures"
MACHINE: Final = "dgx1-v100"
SETS: Final = ((0, 3), (4, 5), (1, 6))  # joined by two lanes, by one, by none
EB: Final = 0.1
NUMBERS: Final = (-0.33, -0.07, 0.0, 0.08, 0.26, 0.47)


def pictures() -> dict[str, str]:
    """Every picture by its path."""
    found = {"gang": gang(), "level": level(), "value": value(), "bound": bound(), "plan": plan()}
    return {f"{FOLDER}/concept-{name}.svg": drawing for name, drawing in found.items()}


def gang() -> str:
    """Before and after: a gang of two workers, A and B, gets all its GPUs at one moment."""
    return card(
        900,
        250,
        "A gang is placed as a whole or not at all",
        "Three moments of a cluster with two machines of four GPUs. First three GPUs are free: the gang of two workers with "
        "two GPUs each waits and holds nothing. Then a job ends and a fourth GPU is free. Both workers get their GPUs at once.",
        [
            *_moment(30, "1  Three GPUs are free", ("..--", ".---"), "workers A and B wait, hold nothing"),
            arrow(288, 120, 318, 120),
            *_moment(330, "2  A job ends", ("..--", "..--"), "now all workers fit"),
            arrow(588, 120, 618, 120),
            *_moment(630, "3  Both workers are placed", ("AA--", "BB--"), "at one moment, or not at all"),
        ],
    )


def _moment(x: int, title: str, machines: tuple[str, str], below: str) -> Iterator[str]:
    yield words(x, 40, title, bold=True)
    for number, holders in enumerate(machines):
        left = x + number * 128
        yield box(left, 70, 118, 100)
        yield words(left + 8, 92, f"machine {number + 1}", size=13, colour=GREY)
        yield from gpus(left + 8, 112, holders)
    yield words(x, 204, below, size=13)
    yield words(x, 226, "grey: held by other jobs", size=12, colour=GREY)


def level() -> str:
    """Two blocks of two racks of two machines; four jobs, each at another level."""
    parts = [words(24, 34, "Cluster", bold=True)]
    for block in range(2):
        left = 24 + 506 * block
        parts += [box(left, 50, 490, 232, fill="#ffffff"), words(left + 12, 72, f"block {block + 1}", colour=GREY)]
        for rack in range(2):
            parts += _rack(left + 12 + 238 * rack, 2 * block + rack)
    legend = ("A: Machine", "B: Rack", "C: Block", "D: Cluster")
    for number, text in enumerate(legend):
        parts += [*gpus(24 + 190 * number, 302, text[0], 1), words(54 + 190 * number, 318, text[3:])]
    return card(
        1044,
        344,
        "The four levels: Machine, Rack, Block, Cluster",
        "A cluster has two blocks with two racks each, and two machines with four GPUs in each rack. Job A sits in one machine, "
        "job B in two machines of one rack, job C in two racks of one block, job D in both blocks.",
        parts,
    )


def _rack(left: int, number: int) -> Iterator[str]:
    yield box(left, 84, 228, 186)
    yield words(left + 10, 106, f"rack {number + 1}", size=13, colour=GREY)
    for index, holders in enumerate(_placed()[number]):
        top = 116 + 76 * index
        yield box(left + 10, top, 208, 68, fill="#ffffff")
        yield words(left + 18, top + 20, f"machine {2 * number + index + 1}", size=12, colour=GREY)
        yield from gpus(left + 18, top + 32, holders)


def _placed() -> tuple[tuple[str, str], ...]:
    """Who holds what, by rack and machine."""
    return (("AAAA", "CC.."), ("CC..", "D..."), ("BB..", "BB.."), ("D...", "...."))


def value() -> str:
    """Three pairs of GPUs of one machine and what a ring of two gets on each."""
    graph = machine(MACHINE)
    table = table_for(graph, Pattern.RING)
    named = {pair: f"{table.value(sum(1 << gpu for gpu in pair)) / 1000:.1f} GB/s" for pair in SETS}
    held = {gpu: text for pair, text in named.items() for gpu in pair}
    told = ", ".join(f"GPUs {a} and {b} {named[a, b]}" for a, b in SETS)
    return described(
        svg(
            graph,
            "Three pairs of GPUs and their value",
            held,
            ["value of a pair for the pattern Ring:", "the bandwidth of its link"],
        ),
        f"The link graph of a DGX-1 with V100 GPUs. Value of three pairs for the pattern Ring: {told}.",
    )


def bound() -> str:
    """Numbers, the bins they fall into, and what is read back."""
    scale, middle = 560, 440
    parts = [words(24, 36, "Each number is replaced by the middle of its bin", bold=True)]
    for edge in range(-3, 4):
        x = middle + scale * 2 * EB * edge
        parts += [
            line(x, 70, x, 170),
            words(x, 192, f"{2 * EB * edge:+.1f}" if edge else "0", size=12, colour=GREY, anchor="middle"),
        ]
    parts += [line(90, 150, 790, 150, INK, 1.4), *(part for x in NUMBERS for part in _number(middle, scale, x))]
    parts += [
        words(24, 226, f"error bound eb = {EB}: bins are 2 eb = {2 * EB} wide, so no number is off by more than eb", size=13),
        words(
            24,
            248,
            "dots: what the forward pass computed; bars: what the backward pass reads; zero stays zero, signs stay",
            size=13,
        ),
    ]
    return card(
        880,
        270,
        "An error bound: how far a packed number may be off",
        f"A number line with bins of width {2 * EB}. {'; '.join(f'{x:g} is read back as {packed(x, EB):g}' for x in NUMBERS)}.",
        parts,
    )


def packed(x: float, eb: float) -> float:
    """The middle of the bin of x; zero is no bin but a value of its own."""
    return round(math.copysign((math.ceil(abs(x) / (2 * eb)) - 0.5) * 2 * eb, x), 10) if x else 0.0


def _number(middle: float, scale: float, x: float) -> Iterator[str]:
    at, read = middle + scale * x, middle + scale * packed(x, EB)
    yield line(read, 122, read, 150, COLOURS[0], 4)
    yield f'<circle cx="{at:g}" cy="100" r="5" fill="{COLOURS[1]}"/>'
    yield words(at, 88, f"{x:g}", size=12, anchor="middle")
    if abs(at - read) > 1:
        yield line(at, 105, read, 122, GREY, 1)


def plan() -> str:
    """A gang from its pods to its GPUs: states of status.scheduling, its pods, and a machine's GPUs."""
    steps = (
        ("Waiting", "no place yet", "it has no pods either", ("----", "----")),
        ("Reserved", "its pods are being created", "GPUs are kept for them", ("rrrr", "----")),
        ("Released", "the plan has a seat per pod", "gates go, plan comes: one write", ("AABB", "----")),
        ("Bound", "kube-scheduler binds the pods", "they hold exactly these GPUs", ("AABB", "----")),
    )
    parts = [words(24, 36, "From pods to GPUs", bold=True)]
    for number, (state, why, pods, machines) in enumerate(steps):
        left = 24 + 262 * number
        parts += [box(left, 56, 226, 190), words(left + 12, 82, state, bold=True), words(left + 12, 104, why, size=13)]
        parts += [words(left + 12, 126, pods, size=12, colour=GREY)]
        for row, holders in enumerate(machines):
            parts += [words(left + 12, 166 + 40 * row, f"machine {row + 1}", size=12, colour=GREY)]
            parts += gpus(left + 96, 150 + 40 * row, holders)
        if number:
            parts.append(arrow(left - 34, 150, left - 4, 150))
    told = "A gang that later ones overtook too often is Reserved before it has a plan. "
    told += "A plan that cannot be carried out is Withdrawn as a whole."
    parts.append(words(24, 276, told, size=13))
    return card(
        1074,
        296,
        "Plan, seats, reservation and gates",
        "Four steps of a gang of two workers, A and B. Waiting: other jobs hold all GPUs, the gang has no pods. "
        "Reserved: the four GPUs of machine 1 have become free and are kept while the pods are created, each with a scheduling "
        "gate. Released: each worker has a seat of two GPUs there, and the gates are removed. Bound: the pods hold these GPUs.",
        parts,
    )


def main() -> None:
    for path, drawing in pictures().items():
        (ROOT / path).write_text(drawing, "utf-8")


if __name__ == "__main__":
    main()
