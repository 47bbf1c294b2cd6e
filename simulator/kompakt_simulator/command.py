"""`kompakt simulate`: one trace, policies side by side."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import typer
from rich.console import Console

from kompakt_core.errors import InvalidInput
from kompakt_core.policy.model import OVERTAKEN_AT_MOST
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import known_machine
from kompakt_simulator import options
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.extensions import Installed, installed_placements, installed_policies, installed_traces, trace_named
from kompakt_simulator.figures import ring_share, summarize
from kompakt_simulator.html import html_of
from kompakt_simulator.jobs import Trace
from kompakt_simulator.network import FREE, Network, load_network, network_on
from kompakt_simulator.options import CLUSTER, SimulationOutput
from kompakt_simulator.placements import Placement
from kompakt_simulator.policies import SchedulingPolicy
from kompakt_simulator.report import PolicyRun, csv_of, json_of, table_of
from kompakt_simulator.setting import Knowledge, Setting, SimulationRules, parse_rules
from kompakt_simulator.simulation import known_to
from kompakt_simulator.simulation import simulate as run_simulation

PIPE_COLUMNS: Final = 1000
_T = TypeVar("_T")


def simulate(
    trace: options.TraceName = "tiresias-60",
    format: options.TraceFormat = None,
    cluster: options.ClusterText = None,
    policy: options.PolicyNames = None,
    placement: options.PlacementName = "levels",
    machine: options.MachineName = None,
    network: options.NetworkFile = None,
    restart_s: options.Restart = 30,
    checkpoint_s_per_gpu: options.Checkpoint = 1,
    checkpoint_interval_s: options.CheckpointInterval = 0,
    lease: options.Lease = 3600,
    history: options.History = 48,
    timers: options.Timers = None,
    knowledge: options.KnowledgeName = None,
    declared_error: options.DeclaredError = 1,
    overtaken_at_most: options.OvertakenAtMost = OVERTAKEN_AT_MOST,
    seed: options.Seed = 0,
    rules: options.Rules = None,
    output: options.Output = SimulationOutput.TABLE,
    html: options.Page = None,
    jobs: options.Jobs = False,
) -> None:
    """Run a trace of jobs through scheduling policies in virtual time and compare completion times."""
    if jobs and output is not SimulationOutput.JSON:
        raise InvalidInput(f"--jobs with -o {output}: expected -o json; -o csv prints a row per job as it is")
    loaded = _loaded(trace, format)
    graph = None if machine is None else known_machine(machine).graph()
    where, shape, costs = _world(cluster, network)
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
    world = ClusterState.of(shape)
    runs = _runs(loaded, world, setting, graph, placement, _split(policy))
    title = f"{loaded.name}: {len(loaded.jobs)} jobs on {where}{_work_of(loaded)}"
    note = _note(costs, network)
    if html is not None:
        _write(html, html_of(title, runs, world.shape, note))
    _print(title, note, loaded, world, runs, output, jobs)


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page)
    except OSError as error:
        raise InvalidInput(f"--html {path}: cannot be written: {error.strerror}") from None


def _loaded(trace: str, format: str | None) -> Trace:
    traces = installed_traces()
    _leave_out(traces)
    return trace_named(trace, format, traces.rows)


def _world(cluster: str | None, network: str | None) -> tuple[str, ClusterShape, Network]:
    """Where the cluster is described, its shape, and its network; the network's file may describe both."""
    if network is None:
        return cluster or CLUSTER, read_shape(cluster or CLUSTER), FREE
    file = load_network(network)
    if file.shape is not None and cluster is not None:
        raise InvalidInput(f"--cluster {cluster} and racks in {network}: two clusters; give one of them")
    shape = read_shape(cluster or CLUSTER) if file.shape is None else file.shape
    return network if file.shape is not None else cluster or CLUSTER, shape, network_on(file, shape)


def _runs(
    trace: Trace, world: ClusterState, setting: Setting, graph: LinkGraph | None, placement: str, policies: list[str] | None
) -> list[PolicyRun]:
    """Each policy that is named, on the same trace. What all of them need is checked before the first one runs."""
    placements, installed = installed_placements(graph), installed_policies()
    _leave_out(placements, installed)
    place = _chosen("--placement", [placement], placements.rows)[placement.lower()]
    chosen = _chosen("--policy", policies, installed.rows)
    for each in chosen.values():
        known_to(each, setting)
    return [_run(trace, world, each, place, setting, graph) for each in chosen.values()]


def _run(
    trace: Trace, cluster: ClusterState, policy: SchedulingPolicy, place: Placement, setting: Setting, graph: LinkGraph | None
) -> PolicyRun:
    outcome = run_simulation(trace.jobs, cluster, policy, place, setting)
    ring = None if graph is None else ring_share(outcome, cluster, graph)
    free = policy.free_of_cost and setting.rules.srtf_is_free
    return PolicyRun(policy.name, summarize(outcome, setting.rules), outcome, ring, known_to(policy, setting), free)


def _work_of(trace: Trace) -> str:
    """The unit is that of the trace's file, nothing that is printed."""
    return f"; the trace gives a job's work as {trace.work}" if trace.work else ""


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
        _screen().print(table_of(title, runs, note))
    if any(run.summary.violations for run in runs):
        raise typer.Exit(1)


def _screen() -> Console:
    """A pipe or file gets whole lines, whatever the width of the terminal."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE_COLUMNS)


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
