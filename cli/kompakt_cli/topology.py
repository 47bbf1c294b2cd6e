"""`kompakt topology`: the link graph of a machine as a picture."""

from typing import Annotated

import typer
from rich.console import Console

from kompakt_cli.picture import draw
from kompakt_cli.words import gpu_set, read_machine
from kompakt_core.ids import indices_of

Name = Annotated[str, typer.Argument(help="a known machine, a file with `nvidia-smi topo -m` output, or - for standard input")]
Held = Annotated[str, typer.Option(help="GPUs to show as held, such as 0,1,4-7")]


def topology(name: Name, held: Held = "") -> None:
    """Draw the link graph of a machine."""
    graph = read_machine(name)
    taken = indices_of(gpu_set(held, graph, "--held"))
    Console().print(draw(graph, dict.fromkeys(taken, "held")))
