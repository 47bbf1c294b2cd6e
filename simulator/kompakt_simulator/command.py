"""`kompakt simulate`: one trace, policies and placements side by side."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from kompakt_core.errors import InvalidInput
from kompakt_simulator.cluster import Cluster
from kompakt_simulator.placements.table import PLACEMENTS
from kompakt_simulator.policies.table import POLICIES
from kompakt_simulator.reading import BUILT_IN, load_trace
from kompakt_simulator.report import Run, table_of
from kompakt_simulator.simulation import simulate as run_simulation
from kompakt_simulator.summary import summarize

_T = TypeVar("_T")


def simulate(
    trace: Annotated[str, typer.Option(help=f"{', '.join(BUILT_IN)}, or the path of a CSV file (plain or gzip)")] = "tiresias-60",
    machines: Annotated[int, typer.Option(help="number of machines")] = 4,
    gpus: Annotated[int, typer.Option(help="GPUs of each machine")] = 4,
    policy: Annotated[list[str] | None, typer.Option(help=f"{', '.join(POLICIES)}; may be repeated; default: all")] = None,
    placement: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PLACEMENTS)}; may be repeated; default: all")] = None,
) -> None:
    """Run a trace of jobs through scheduling policies in virtual time and compare completion times."""
    loaded = load_trace(trace)
    cluster = Cluster.empty(machines, gpus)
    places = _chosen("--placement", placement, PLACEMENTS)
    runs = [
        Run(order, where, summarize(run_simulation(loaded.jobs, cluster, rules, place)))
        for order, rules in _chosen("--policy", policy, POLICIES).items()
        for where, place in places.items()
    ]
    title = f"{loaded.name}: {len(loaded.jobs)} jobs on {machines} x {gpus} GPUs"
    Console().print(table_of(title, runs))


def _chosen(flag: str, names: list[str] | None, table: Mapping[str, _T]) -> dict[str, _T]:
    """The named lines of a table, all if none is named; case does not matter. Raises InvalidInput."""
    wanted = list(table) if names is None or not names else [name.lower() for name in names]
    unknown = [name for name in wanted if name not in table]
    if unknown:
        raise InvalidInput(f"{flag} {unknown[0]}: unknown; expected one of: {', '.join(table)}")
    return {name: table[name] for name in wanted}
