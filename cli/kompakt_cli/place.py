"""`kompakt place`: which GPUs a pod would get on a machine, and why."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from kompakt_cli.picture import draw
from kompakt_cli.placed import PlacementAnswer, document, lines, place_on
from kompakt_cli.svg import svg
from kompakt_cli.words import gpu_set, read_machine, word_of
from kompakt_core.contract.words import RequiredLink, Sensitivity
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NO_GPUS
from kompakt_core.patterns.edges import parse_edges
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.model import GpuRequest, PlacementPolicy, Rejection

REFUSED = 3  # exit code


class PlaceOutput(StrEnum):
    """How to show it."""

    PICTURE = "picture"
    SVG = "svg"
    YAML = "yaml"
    JSON = "json"


MAPA = "mapa2021"  # for comparison only: no policy of a TrainingJob

Machine = Annotated[str, typer.Option(help="a known machine (see `kompakt machines`), or as --matrix")]
Matrix = Annotated[str, typer.Option(help="a file: output of `nvidia-smi topo -m`, YAML, or a GPUTopology; - for standard input")]
Gpus = Annotated[int, typer.Option(help="how many GPUs the pod asks for", min=1)]
Free = Annotated[str, typer.Option(help="the free GPUs, such as 0,1,4-7 (default: all)")]
PatternName = Annotated[str, typer.Option(help=", ".join(Pattern), metavar="PATTERN")]
EdgeList = Annotated[
    str, typer.Option(help="custom edges between ranks, such as 0-1,1-2:3 (with weights); means --pattern custom")
]
PolicyName = Annotated[str, typer.Option(help=", ".join((*PlacementPolicy, MAPA)), metavar="POLICY")]
MeasureName = Annotated[str, typer.Option(help="what value counts: the slowest link (Bottleneck) or all added up (Sum)")]
SensitivityName = Annotated[str, typer.Option(help=f"{', '.join(Sensitivity)}: whether the job needs bandwidth (for Preserve)")]
Include = Annotated[str, typer.Option(help="GPUs that must be in the set")]
Exclude = Annotated[str, typer.Option(help="GPUs that must not be")]
Link = Annotated[str, typer.Option(help="NVLink: the pattern may use no other link")]
SameNuma = Annotated[bool, typer.Option("--same-numa-node", help="all GPUs on one NUMA node")]
Output = Annotated[str, typer.Option("-o", "--output", help=", ".join(PlaceOutput))]


def place(
    gpus: Gpus,
    machine: Machine = "",
    matrix: Matrix = "",
    free: Free = "",
    pattern: PatternName = "",
    edges: EdgeList = "",
    policy: PolicyName = "Preserve",
    sensitivity: SensitivityName = "High",
    measure: MeasureName = "Bottleneck",
    include: Include = "",
    exclude: Exclude = "",
    require_link: Link = "Any",
    same_numa_node: SameNuma = False,
    output: Output = "picture",
) -> None:
    """Show which GPUs a pod would get on a machine, what that is worth, and what chance would have given.

    Exit code 0: placed; 3: refused; 2: bad input.
    """
    form = word_of(PlaceOutput, output, "--output")
    named = [word for word in (machine, matrix) if word]
    if len(named) != 1:
        raise InvalidInput("name one machine: --machine NAME or --matrix FILE")
    graph = read_machine(named[0])
    mapa = policy.casefold() == MAPA
    gpu_request = GpuRequest(
        pattern=_pattern(pattern, edges),
        policy=PlacementPolicy.PRESERVE if mapa else word_of(PlacementPolicy, policy, "--policy"),
        sensitive=word_of(Sensitivity, sensitivity, "--sensitivity").needs_bandwidth,
        required_link=word_of(RequiredLink, require_link, "--require-link"),
        same_numa_node=same_numa_node,
        measure=word_of(Measure, measure, "--measure"),
        edges=parse_edges(edges) if edges else (),
    )
    available = gpu_set(free, graph, "--free") if free else graph.all_gpus
    within = available & ~(gpu_set(exclude, graph, "--exclude") if exclude else NO_GPUS)
    must = gpu_set(include, graph, "--include") if include else NO_GPUS
    if mapa:
        _only_rings(gpu_request, must)
    answer = place_on(graph, within, gpus, gpu_request, must, mapa=mapa)
    _show(answer, form, available)
    if isinstance(answer.choice, Rejection):
        if form in (PlaceOutput.PICTURE, PlaceOutput.SVG):
            typer.echo(f"kompakt: {sentence(answer.choice)}", err=True)
        raise typer.Exit(REFUSED)


def _only_rings(gpu_request: GpuRequest, must: int) -> None:
    """What MAPA's published rules would pass over is refused: they score rings and know no hard demands."""
    if (
        gpu_request.pattern is not Pattern.RING
        or must
        or gpu_request.same_numa_node
        or gpu_request.required_link != RequiredLink.ANY
    ):
        raise InvalidInput(
            f"--policy {MAPA} knows the pattern Ring only, and neither --include, --require-link nor --same-numa-node; "
            "leave these out"
        )


def _pattern(pattern: str, edges: str) -> Pattern:
    if edges:
        named = word_of(Pattern, pattern, "--pattern") if pattern else Pattern.CUSTOM
        if named is not Pattern.CUSTOM:
            raise InvalidInput(f"--edges and --pattern {named} exclude each other; leave one out")
        return named
    found = word_of(Pattern, pattern or Pattern.RING, "--pattern")
    if found is Pattern.CUSTOM:
        raise InvalidInput("--pattern Custom needs --edges, such as --edges 0-1,1-2")
    return found


def _show(answer: PlacementAnswer, form: PlaceOutput, available: int) -> None:
    data: dict[str, Any] = document(answer)
    if form is PlaceOutput.JSON:
        typer.echo(json.dumps(data))
    elif form is PlaceOutput.YAML:
        typer.echo(yaml.safe_dump(data, sort_keys=False), nl=False)
    elif not isinstance(answer.choice, Rejection):
        held: dict[int, str] = {i: "chosen" for i in answer.choice.order}  # noqa: C420 - typed by int, not by GpuIndex
        held |= {i: "taken" for i in range(answer.graph.size) if not available >> i & 1}
        if form is PlaceOutput.SVG:
            typer.echo(svg(answer.graph, "placement", held, lines(answer)), nl=False)
            return
        console = Console()
        console.print(draw(answer.graph, held, others=("taken",)))
        console.print()
        for line in lines(answer):
            console.print(line, highlight=False)
