"""`kompakt topology`: the link graph of a machine as a picture, or in a form for programs."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from kompakt_cli.legend import facts
from kompakt_cli.picture import draw
from kompakt_cli.svg import svg
from kompakt_cli.words import gpu_set, read_machine, word_of
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import indices_of
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.handwritten import graph_to_yaml
from kompakt_core.topology.machines import MACHINES
from kompakt_core.topology.wire import graph_to_spec


class TopologyOutput(StrEnum):
    """How to show it."""

    TEXT = "text"
    SVG = "svg"
    YAML = "yaml"
    JSON = "json"


Name = Annotated[str, typer.Argument(help="a known machine, a file that describes one, or - for standard input")]
MachineName = Annotated[str, typer.Option(help="a known machine (see `kompakt machines`)")]
Matrix = Annotated[str, typer.Option(help="a file: output of `nvidia-smi topo -m`, YAML, or a GPUTopology; - for standard input")]
Held = Annotated[str, typer.Option(help="GPUs to show as held, such as 0,1,4-7")]
Form = Annotated[str, typer.Option("-o", "--output", help="text, svg, yaml (a description to edit) or json (GPUTopology.spec)")]


def topology(name: Name = "", machine: MachineName = "", matrix: Matrix = "", held: Held = "", output: Form = "text") -> None:
    """Draw the link graph of a machine."""
    form = word_of(TopologyOutput, output, "--output")
    named = [word for word in (name, machine, matrix) if word]
    if len(named) != 1:
        raise InvalidInput("name one machine: NAME, --machine NAME or --matrix FILE")
    graph = read_machine(named[0])
    taken: dict[int, str] = {i: "held" for i in indices_of(gpu_set(held, graph, "--held"))}  # noqa: C420 - typed by int
    if form is TopologyOutput.TEXT:
        _print(graph, named[0], taken)
    elif form is TopologyOutput.SVG:
        typer.echo(svg(graph, named[0] if named[0] in MACHINES else "machine", taken, _origin(named[0])), nl=False)
    elif form is TopologyOutput.YAML:
        typer.echo(graph_to_yaml(graph), nl=False)
    else:
        typer.echo(json.dumps(graph_to_spec(graph, node_uid="", source="text"), indent=2))


def _print(graph: LinkGraph, name: str, held: dict[int, str]) -> None:
    console = Console()
    console.print(draw(graph, held))
    lines = [*facts(graph), *_origin(name)]
    for line in lines:
        console.print(line, highlight=False, style="bold red" if line.startswith("broken") else "dim", markup=False)


def _origin(name: str) -> list[str]:
    """Where a known machine comes from and what was assumed."""
    known = MACHINES.get(name)
    return [f"{word}: {text}" for word, text in (("source", known.source), ("remark", known.note)) if text] if known else []
