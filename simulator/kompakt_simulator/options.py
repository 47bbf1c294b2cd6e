"""The options of `kompakt simulate`: their types, and what `--help` says of each."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import WORDS
from kompakt_simulator.traces.formats import WORK
from kompakt_simulator.traces.reading import BUILT_IN

CLUSTER = "1x4x4"
_ADDED = "what installed packages add"
_CLUSTER = f"RACKSxMACHINESxGPUS, or a YAML or JSON file with unequal racks; default: {CLUSTER}"
_OVERTAKEN = "when so many others went before a job without a place, kompakt keeps GPUs for it"


class SimulationOutput(StrEnum):
    """What is printed."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"
    CSV = "csv"


# What runs where

TraceName = Annotated[str, typer.Option(help=f"{', '.join(BUILT_IN)}, {_ADDED}, or the path of a file (plain or gzip)")]
TraceFormat = Annotated[str | None, typer.Option(help=f"default: told by the file's columns. What counts as work: {WORK}")]
ClusterText = Annotated[str | None, typer.Option(help=_CLUSTER)]
PolicyNames = Annotated[list[str] | None, typer.Option(help=f"{', '.join(POLICIES)}, {_ADDED}; comma-separated; default: all")]
PlacementName = Annotated[str, typer.Option(help=f"{', '.join(PLACEMENTS)}, {_ADDED}; planned with --machine")]
MachineName = Annotated[str | None, typer.Option(help="known machine whose link graph all machines have")]
NetworkFile = Annotated[str | None, typer.Option(help="YAML or JSON file: what communication costs; default: nothing")]

# What stopping costs

Restart = Annotated[float, typer.Option(help="seconds a stopped job needs to start again")]
Checkpoint = Annotated[float, typer.Option(help="seconds per GPU until a stopped job's GPUs are free")]
CheckpointInterval = Annotated[float, typer.Option(help="0: stopping loses no work; else that since the last interval")]

# What policies know and how long they wait

Lease = Annotated[float, typer.Option(help="seconds; for policies with leases")]
History = Annotated[float, typer.Option(help="leases that Dally's tuner looks back")]
Timers = Annotated[str | None, typer.Option(help="Dally's R,N in leases; default: tuned")]
KnowledgeName = Annotated[str | None, typer.Option(help="none, declared, oracle; default: what each policy needs")]
DeclaredError = Annotated[float, typer.Option(help="declared totals are wrong by this lognormal factor")]
OvertakenAtMost = Annotated[int, typer.Option(help=_OVERTAKEN)]
Seed = Annotated[int, typer.Option(help="for all that chance decides")]
Rules = Annotated[str | None, typer.Option(help=f"where simulators differ, comma-separated: {WORDS}; first = default")]

# What is printed

Output = Annotated[SimulationOutput, typer.Option("--output", "-o", help="csv: a row per policy and job")]
Page = Annotated[Path | None, typer.Option("--html", help="also write the page of -o html to this file")]
Jobs = Annotated[bool, typer.Option("--jobs", help="with -o json: also an object per job")]
