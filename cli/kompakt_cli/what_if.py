"""`kompakt what-if`: which nodes could take a request now, and why the others could not."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from kompakt_cli.cluster_options import ClusterOptions, asking
from kompakt_cli.output import Answer, columns, facts, gpus, request_text, show, standings
from kompakt_cli.words import gigabytes, word_of
from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.model import PlacementPolicy

Gpus = Annotated[int | None, typer.Option(help="how many GPUs the pod would ask for", min=1)]
Manifest = Annotated[
    str | None, typer.Option("-f", "--filename", help="a pod's manifest instead, YAML or JSON; - for standard input")
]
PatternName = Annotated[str | None, typer.Option(help="such as Ring, Clique or None (default)", metavar="PATTERN")]
Edges = Annotated[str | None, typer.Option(help="own pattern over ranks, such as 0-1,1-2", metavar="EDGES")]
PolicyName = Annotated[str | None, typer.Option(help="Best, Preserve, Packed or First", metavar="POLICY")]
Insensitive = Annotated[bool, typer.Option("--insensitive", help="the job needs no bandwidth")]
NVLink = Annotated[bool, typer.Option("--nvlink", help="requiredLink NVLink")]
SameNuma = Annotated[bool, typer.Option("--same-numa-node", help="all GPUs on one NUMA node")]
Limit = Annotated[int, typer.Option(help="how many nodes to list", min=1, max=200)]


@asking
def what_if(
    question: ClusterOptions,
    gpus: Gpus = None,
    filename: Manifest = None,
    pattern: PatternName = None,
    edges: Edges = None,
    policy: PolicyName = None,
    insensitive: Insensitive = False,
    nvlink: NVLink = False,
    same_numa_node: SameNuma = False,
    limit: Limit = 20,
) -> None:
    """Ask the cluster which nodes could take a pod now, best first. Nothing is reserved."""
    if (gpus is None) == (filename is None):
        raise InvalidInput("give either --gpus or a pod's manifest with -f")
    body: dict[str, Any] = {"limit": limit}
    options = {
        "pattern": word_of(Pattern, pattern, "--pattern").value if pattern else "Custom" if edges else None,
        "edges": edges,
        "policy": word_of(PlacementPolicy, policy, "--policy").value if policy else None,
        "requiredLink": "NVLink" if nvlink else None,
        "sameNUMANode": True if same_numa_node else None,
        "sensitivity": "Low" if insensitive else None,
    }
    body |= {key: value for key, value in options.items() if value is not None}
    if filename is None:
        body |= {"gpus": gpus, "sensitivity": "Low" if insensitive else "High"}
    elif len(body) > 1:
        raise InvalidInput("with -f the pod's annotations say how GPUs are chosen")
    else:
        body["pod"] = read_manifest(filename)
    answer = question.cluster.post("what-if", body)
    show(answer, question.output, text(answer), (f"node/{one['node']}" for one in answer["offers"]))


def read_manifest(name: str) -> dict[str, Any]:
    """One object of a YAML or JSON file. Raises InvalidInput where the file is no such thing."""
    import yaml

    try:
        found = yaml.safe_load(sys.stdin.read() if name == "-" else Path(name).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(f"{name}: cannot be read as YAML: {error}") from None
    if not isinstance(found, dict) or found.get("kind", "Pod") != "Pod":
        raise InvalidInput(f"{name}: holds no pod; one object of kind Pod is needed")
    return found


def text(answer: Answer) -> Iterator[RenderableType]:
    """The answer on screen."""
    ideal = answer["ideal"]
    yield facts(
        ("asked", request_text(answer["asked"])),
        ("fits", f"{answer['fits']} of {answer['nodes']} nodes"),
        ("never", answer.get("never", "")),
        ("ideal", f"{gigabytes(ideal)} GB/s, the best on an empty node of this cluster" if ideal else ""),
    )
    if answer["offers"]:
        table = columns(
            "node", "gpus", "GB/s", "of ideal", "score", "free after", right=["GB/s", "of ideal", "score", "free after"]
        )
        for one in answer["offers"]:
            share = f"{one['value'] / ideal:.0%}" if ideal else "-"
            after, score = str(one["freeAfter"]), str(one["score"])
            table.add_row(one["node"], gpus(one["gpus"]), gigabytes(one["value"]), share, score, after)
        yield table
    yield from standings(answer)
