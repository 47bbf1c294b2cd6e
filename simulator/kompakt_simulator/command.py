"""`kompakt simulate`: one trace, policies and placements side by side."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import known_machine
from kompakt_simulator.cluster import Cluster
from kompakt_simulator.placements.table import PLACEMENTS, Placement, placements_on
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.policies.table import POLICIES
from kompakt_simulator.quality import ring_share
from kompakt_simulator.reading import BUILT_IN, load_trace
from kompakt_simulator.report import Run, table_of
from kompakt_simulator.simulation import simulate as run_simulation
from kompakt_simulator.summary import summarize
from kompakt_simulator.trace import Trace

_T = TypeVar("_T")
DEFAULT_GPUS = 4


def simulate(
    trace: Annotated[str, typer.Option(help=f"{', '.join(BUILT_IN)}, or the path of a CSV file (plain or gzip)")] = "tiresias-60",
    machines: Annotated[int, typer.Option(help="number of machines")] = 4,
    gpus: Annotated[int | None, typer.Option(help="GPUs of each machine; default: 4, or as many as --machine has")] = None,
    machine: Annotated[
        str | None,
        typer.Option(help="known machine whose link graph all machines have (`kompakt machines`); allows the placement planned"),
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help=f"{', '.join(POLICIES)}; may be repeated; default: all")] = None,
    placement: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(PLACEMENTS)}, planned; may be repeated; default: all")
    ] = None,
) -> None:
    """Run a trace of jobs through scheduling policies in virtual time and compare completion times."""
    loaded = load_trace(trace)
    graph = None if machine is None else known_machine(machine).graph()
    cluster = Cluster.empty(machines, gpus if gpus is not None else graph.size if graph else DEFAULT_GPUS)
    places = _chosen("--placement", placement, placements_on(graph))
    runs = [
        _run(loaded, cluster, order, where, graph)
        for order in _chosen("--policy", policy, POLICIES).values()
        for where in places.items()
    ]
    title = f"{loaded.name}: {len(loaded.jobs)} jobs on {machines} x {cluster.gpus_per_machine} GPUs"
    Console().print(table_of(title, runs))


def _run(trace: Trace, cluster: Cluster, policy: Policy, placement: tuple[str, Placement], graph: LinkGraph | None) -> Run:
    name, place = placement
    outcome = run_simulation(trace.jobs, cluster, policy, place)
    ring = None if graph is None else ring_share(outcome, cluster, graph)
    return Run(policy.name, name, summarize(outcome), ring)


def _chosen(flag: str, names: list[str] | None, table: Mapping[str, _T]) -> dict[str, _T]:
    """The named lines of a table, all if none is named; case does not matter. Raises InvalidInput."""
    wanted = list(table) if names is None or not names else [name.lower() for name in names]
    unknown = [name for name in wanted if name not in table]
    if unknown:
        raise InvalidInput(f"{flag} {unknown[0]}: unknown; expected one of: {', '.join(table)}")
    return {name: table[name] for name in wanted}
