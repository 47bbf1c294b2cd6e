"""`kompakt place`: which GPUs a pod would get on a machine, and why."""

from typing import Annotated

import typer
from rich.console import Console

from kompakt_cli.picture import draw
from kompakt_cli.words import gigabytes, gpu_set, read_machine, word_of
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuMask
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.baseline import random_choice
from kompakt_core.placement.choose import choose
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.model import Choice, Policy, Refusal, Wish
from kompakt_core.topology.graph import LinkGraph

Machine = Annotated[str, typer.Option(help="as for `kompakt topology`: name, file or -")]
Gpus = Annotated[int, typer.Option(help="how many GPUs the pod asks for", min=1)]
Free = Annotated[str, typer.Option(help="the free GPUs, such as 0,1,4-7 (default: all)")]
PatternName = Annotated[str, typer.Option(help="Ring, Chain, Tree, Star, Clique, AllToAll or None", metavar="PATTERN")]
PolicyName = Annotated[str, typer.Option(help="Best, Preserve, Packed or First", metavar="POLICY")]
Insensitive = Annotated[bool, typer.Option("--insensitive", help="the job needs no bandwidth (for Preserve)")]
NVLink = Annotated[bool, typer.Option("--nvlink", help="requiredLink NVLink: no other link may be used")]
SameNuma = Annotated[bool, typer.Option("--same-numa-node", help="all GPUs on one NUMA node")]


def place(
    machine: Machine,
    gpus: Gpus,
    free: Free = "",
    pattern: PatternName = "Ring",
    policy: PolicyName = "Preserve",
    insensitive: Insensitive = False,
    nvlink: NVLink = False,
    same_numa_node: SameNuma = False,
) -> None:
    """Show which GPUs a pod would get on a machine, what that is worth, and what chance would have given."""
    graph = read_machine(machine)
    wish = Wish(
        word_of(Pattern, pattern, "--pattern"),
        word_of(Policy, policy, "--policy"),
        not insensitive,
        "NVLink" if nvlink else "Any",
        same_numa_node,
    )
    available = gpu_set(free, graph, "--free") if free else graph.all_gpus
    choice = choose(graph, available, gpus, wish)
    if isinstance(choice, Refusal):
        raise InvalidInput(sentence(choice))
    _print(graph, available, wish, choice)


def _print(graph: LinkGraph, free: GpuMask, wish: Wish, choice: Choice) -> None:
    held: dict[int, str] = {i: "chosen" for i in choice.order}  # noqa: C420 - typed by int, not by GpuIndex
    held |= {i: "taken" for i in range(graph.size) if not free >> i & 1}
    console = Console()
    console.print(draw(graph, held, others=("taken",)))
    console.print()
    for line in lines(graph, free, wish, choice):
        console.print(line, highlight=False)


def lines(graph: LinkGraph, free: GpuMask, wish: Wish, choice: Choice) -> list[str]:
    """What was chosen and how it compares, as sentences."""
    size = len(choice.order)
    arrow = " -> " if wish.pattern is Pattern.RING and size > 1 else ", "
    order = arrow.join(str(i) for i in choice.order) + (
        f" -> {choice.order[0]}" if wish.pattern is Pattern.RING and size > 2 else ""
    )
    out = [f"chosen   GPU {order}   (policy {wish.policy}, {'sensitive' if wish.sensitive else 'insensitive'})"]
    if wish.pattern is Pattern.NONE:
        return [*out, "value    none: pattern None asks for no bandwidth among the GPUs"]
    if size == 1:
        return [*out, "value    none: a single GPU has nobody to talk to"]
    ideal = random_choice(graph, graph.all_gpus, size, wish.pattern).best
    chance = random_choice(graph, free, size, wish.pattern)
    share = f" ({choice.value / ideal:.0%} of the best on an empty one, {gigabytes(ideal)} GB/s)" if ideal else ""
    out.append(f"value    {gigabytes(choice.value)} GB/s {wish.pattern}{share}")
    sets = "the only free set" if chance.sets == 1 else f"any of the {chance.sets} free sets"
    out.append(f"by count {gigabytes(chance.mean)} GB/s on average, {gigabytes(chance.worst)} at worst ({sets})")
    return out
