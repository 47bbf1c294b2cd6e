"""`kompakt simulate`: one trace, policies side by side."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from kompakt_core.errors import InvalidInput
from kompakt_core.policy.model import OVERTAKEN_AT_MOST
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import known_machine
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.extensions import Installed, installed_placements, installed_policies, installed_traces, trace_named
from kompakt_simulator.figures import ring_share, summarize
from kompakt_simulator.html import html_of
from kompakt_simulator.jobs import Trace
from kompakt_simulator.network import FREE, Network, load_network, network_on
from kompakt_simulator.placements import PLACEMENTS, Placement
from kompakt_simulator.policies import POLICIES, SchedulingPolicy
from kompakt_simulator.report import PolicyRun, csv_of, json_of, table_of
from kompakt_simulator.setting import WORDS, Knowledge, Setting, SimulationRules, parse_rules
from kompakt_simulator.simulation import known_to
from kompakt_simulator.simulation import simulate as run_simulation
from kompakt_simulator.traces.formats import WORK
from kompakt_simulator.traces.reading import BUILT_IN

CLUSTER = "1x4x4"
_ADDED = "what installed packages add"
_T = TypeVar("_T")


class SimulationOutput(StrEnum):
    """What is printed."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"
    CSV = "csv"


def simulate(
    trace: Annotated[
        str, typer.Option(help=f"{', '.join(BUILT_IN)}, {_ADDED}, or the path of a file (plain or gzip)")
    ] = "tiresias-60",
    format: Annotated[str | None, typer.Option(help=f"default: told by the file's columns. What counts as work: {WORK}")] = None,
    cluster: Annotated[
        str | None, typer.Option(help=f"RACKSxMACHINESxGPUS, or a YAML or JSON file with unequal racks; default: {CLUSTER}")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(POLICIES)}, {_ADDED}; comma-separated; default: all")
    ] = None,
    placement: Annotated[str, typer.Option(help=f"{', '.join(PLACEMENTS)}, {_ADDED}; planned with --machine")] = "levels",
    machine: Annotated[str | None, typer.Option(help="known machine whose link graph all machines have")] = None,
    network: Annotated[str | None, typer.Option(help="YAML or JSON file: what communication costs; default: nothing")] = None,
    restart_s: Annotated[float, typer.Option(help="seconds a stopped job needs to start again")] = 30,
    checkpoint_s_per_gpu: Annotated[float, typer.Option(help="seconds per GPU until a stopped job's GPUs are free")] = 1,
    checkpoint_interval_s: Annotated[
        float, typer.Option(help="0: stopping loses no work; else that since the last interval")
    ] = 0,
    lease: Annotated[float, typer.Option(help="seconds; for policies with leases")] = 3600,
    history: Annotated[float, typer.Option(help="leases that Dally's tuner looks back")] = 48,
    timers: Annotated[str | None, typer.Option(help="Dally's R,N in leases; default: tuned")] = None,
    knowledge: Annotated[str | None, typer.Option(help="none, declared, oracle; default: what each policy needs")] = None,
    declared_error: Annotated[float, typer.Option(help="declared totals are wrong by this lognormal factor")] = 1,
    overtaken_at_most: Annotated[
        int, typer.Option(help="when so many others went before a job without a place, kompakt keeps GPUs for it")
    ] = OVERTAKEN_AT_MOST,
    seed: Annotated[int, typer.Option(help="for all that chance decides")] = 0,
    rules: Annotated[str | None, typer.Option(help=f"where simulators differ, comma-separated: {WORDS}; first = default")] = None,
    output: Annotated[
        SimulationOutput, typer.Option("--output", "-o", help="csv: a row per policy and job")
    ] = SimulationOutput.TABLE,
    jobs: Annotated[bool, typer.Option("--jobs", help="with -o json: also an object per job")] = False,
) -> None:
    """Run a trace of jobs through scheduling policies in virtual time and compare completion times."""
    if jobs and output is not SimulationOutput.JSON:
        raise InvalidInput(f"--jobs with -o {output}: expected -o json; -o csv prints a row per job as it is")
    traces = installed_traces()
    _leave_out(traces)
    loaded = trace_named(trace, format, traces.rows)
    graph = None if machine is None else known_machine(machine).graph()
    where, shape, costs = _world(cluster, network)
    world = ClusterState.of(shape)
    setting = Setting(
        restart_s=restart_s,
        checkpoint_s_per_gpu=checkpoint_s_per_gpu,
        checkpoint_interval_s=checkpoint_interval_s,
        lease_s=lease,
        history=history,
        timers=None if timers is None else _timers(timers),
        knowledge=None if knowledge is None else _knowledge(knowledge),
        declared_error=declared_error,
        overtaken_at_most=overtaken_at_most,
        seed=seed,
        network=costs,
        rules=SimulationRules() if rules is None else parse_rules(rules),
    )
    placements, policies = installed_placements(graph), installed_policies()
    _leave_out(placements, policies)
    place = _chosen("--placement", [placement], placements.rows)[placement.lower()]
    chosen = _chosen("--policy", _split(policy), policies.rows)
    for each in chosen.values():
        known_to(each, setting)
    runs = [_run(loaded, world, each, place, setting, graph) for each in chosen.values()]
    title = f"{loaded.name}: {len(loaded.jobs)} jobs on {where}; work = {loaded.work}"
    _print(title, _note(costs, network), loaded, world, runs, output, jobs)


def _world(cluster: str | None, network: str | None) -> tuple[str, ClusterShape, Network]:
    """Where the cluster is described, its shape, and its network; the network's file may describe both."""
    if network is None:
        return cluster or CLUSTER, read_shape(cluster or CLUSTER), FREE
    file = load_network(network)
    if file.shape is not None and cluster is not None:
        raise InvalidInput(f"--cluster {cluster} and racks in {network}: two clusters; give one of them")
    shape = read_shape(cluster or CLUSTER) if file.shape is None else file.shape
    return network if file.shape is not None else cluster or CLUSTER, shape, network_on(file, shape)


def _run(
    trace: Trace, cluster: ClusterState, policy: SchedulingPolicy, place: Placement, setting: Setting, graph: LinkGraph | None
) -> PolicyRun:
    outcome = run_simulation(trace.jobs, cluster, policy, place, setting)
    ring = None if graph is None else ring_share(outcome, cluster, graph)
    return PolicyRun(policy.name, summarize(outcome, setting.rules), outcome, ring)


def _note(costs: Network, path: str | None) -> str:
    """What stands with the figures: those without a network must not be taken for those with one."""
    if not costs.free:
        return ""
    return "Communication is free" + (" (no --network)." if path is None else ".")


def _print(
    title: str, note: str, trace: Trace, world: ClusterState, runs: list[PolicyRun], output: SimulationOutput, jobs: bool
) -> None:
    errors = _errors()
    if trace.left_out:
        errors.print(f"left out: {trace.left_out} jobs of which {trace.name} tells no time of running")
    for job in runs[0].outcome.dropped:
        at = f" (line {job.line} of the trace)" if job.line else ""
        errors.print(f"refused: job {job.number} needs {job.gpus} GPUs; the largest possible is {world.size}{at}")
    if output is SimulationOutput.JSON:
        typer.echo(json_of(runs, world.shape if jobs else None))
    elif output is SimulationOutput.CSV:
        typer.echo(csv_of(runs, world.shape), nl=False)
    elif output is SimulationOutput.HTML:
        typer.echo(html_of(title, runs, world.shape, note))
    else:
        Console().print(table_of(title, runs, note))
    if any(run.summary.violations for run in runs):
        raise typer.Exit(1)


def _errors() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False)


def _leave_out(*installed: Installed[Any]) -> None:
    for reason in (reason for one in installed for reason in one.left_out):
        _errors().print(f"left out: {reason}", markup=False)


def _split(names: list[str] | None) -> list[str] | None:
    return None if names is None else [part.strip() for name in names for part in name.split(",")]


def _timers(text: str) -> tuple[float, float]:
    return _parsed("--timers", text, _two_numbers, "two numbers of leases, R,N, such as 12,24")


def _two_numbers(text: str) -> tuple[float, float]:
    r, n = (float(part) for part in text.split(","))
    return r, n


def _knowledge(text: str) -> Knowledge:
    allowed = ", ".join(known.name.lower() for known in Knowledge)
    return _parsed("--knowledge", text, lambda text: Knowledge[text.upper()], f"one of: {allowed}")


def _parsed(flag: str, text: str, read: Callable[[str], _T], wanted: str) -> _T:
    try:
        return read(text)
    except (ValueError, KeyError):
        raise InvalidInput(f"{flag} {text}: expected {wanted}") from None


def _chosen(flag: str, names: list[str] | None, table: Mapping[str, _T]) -> dict[str, _T]:
    """The named lines of a table, all if none is named; case does not matter. Raises InvalidInput."""
    wanted = list(table) if not names else [name.lower() for name in names]
    unknown = [name for name in wanted if name not in table]
    if unknown:
        raise InvalidInput(f"{flag} {unknown[0]}: unknown; expected one of: {', '.join(table)}")
    return {name: table[name] for name in wanted}
