"""`kompakt profile -- python train.py`: where training steps lose time, what that costs where, how much links matter."""

import json
import platform
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from kompakt_cli import profile_document, profile_jobs, profile_manifest, profile_offers
from kompakt_cli.access import Context, Kubeconfig
from kompakt_cli.profile_manifest import Document
from kompakt_cli.profile_manifest import StepLimits as JobSteps
from kompakt_cli.profile_offers import PriceQuestion
from kompakt_cli.profile_runs import Nodes, ProfilePlan, gpus_of, measure, read_script
from kompakt_cli.profile_table import render
from kompakt_cli.words import word_of
from kompakt_core.errors import InvalidInput
from kompakt_core.profile import document
from kompakt_core.profile.document import Profile, ProfiledRun
from kompakt_core.profile.measurements import Measured, distinct, measured, replaced
from kompakt_core.profile.prices import parse_prices

LEAST_STEPS: Final = 4
CPU_PROCESSES: Final = 2


class ProfileOutput(StrEnum):
    """How to show it."""

    TABLE = "table"
    JSON = "json"


Program = Annotated[list[str] | None, typer.Argument(help="python train.py ..., after `--`", metavar="-- PYTHON SCRIPT")]
Devices = Annotated[int, typer.Option(help="devices of this machine (default: all GPUs; without GPUs 2 processes)", min=0)]
Steps = Annotated[int, typer.Option(help="optimizer steps to time in each run", min=LEAST_STEPS)]
WarmUp = Annotated[int, typer.Option(help="steps before them that do not count", min=1)]
Data = Annotated[
    list[str] | None,
    typer.Option(help="file or folder that the training reads (with --job: in its container); several times if need be"),
]
Gpus = Annotated[int, typer.Option(help="GPUs the training is to get, for its sensitivity (default: devices)", min=0)]
Machine = Annotated[str, typer.Option(help="what to call this machine, as in the price table")]
NodeCount = Annotated[int, typer.Option(help="machines that run this same command together, for the network stall", min=1)]
NodeRank = Annotated[int, typer.Option(help="number of this machine among them, from 0", min=0)]
Master = Annotated[str, typer.Option(help="HOST:PORT of machine number 0")]
Single = Annotated[str, typer.Option(help="with --nodes: profile (JSON) of one machine with as many devices as all together")]
Read = Annotated[list[str] | None, typer.Option(help="profile (JSON) made before, to show or for the price table")]
Prices = Annotated[str, typer.Option(help="price table: CSV or YAML with machine, gpus, price_per_hour, and perhaps machines")]
Batches = Annotated[int, typer.Option(help="with --prices: batches of one device in the whole training")]
BudgetHours = Annotated[
    float | None,
    typer.Option(help="with --prices: recommend the cheapest place that trains in so many hours (default: any time)"),
]
Explain = Annotated[bool, typer.Option("--explain", help="with --prices: show the arithmetic of each line")]
Timeout = Annotated[float, typer.Option(help="seconds that one run may take", min=1)]
Job = Annotated[str, typer.Option(help="TrainingJob (YAML) to profile in a cluster, in place of `-- python train.py`")]
Annotate = Annotated[bool, typer.Option("--annotate", help="with --job: hand the profile to the job of that name in the cluster")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="with --job (default: the kubeconfig's)")]
Output = Annotated[str, typer.Option("-o", "--output", help=", ".join(ProfileOutput))]


def profile(
    program: Program = None,
    devices: Devices = 0,
    steps: Steps = 20,
    warm_up: WarmUp = 5,
    data: Data = None,
    gpus: Gpus = 0,
    machine: Machine = "",
    nodes: NodeCount = 1,
    node_rank: NodeRank = 0,
    master: Master = "",
    single: Single = "",
    read: Read = None,
    prices: Prices = "",
    batches: Batches = 0,
    budget_hours: BudgetHours = None,
    explain: Explain = False,
    timeout: Timeout = 1800,
    job: Job = "",
    annotate: Annotate = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Time a few steps of a training on one device and on all, on data from memory and on real data; say where time is lost.

    The script is not changed and its output is not shown; each run ends after the timed steps.
    """
    form = word_of(ProfileOutput, output, "--output")
    table = parse_prices(_text(prices, "--prices"), prices) if prices else []
    question = PriceQuestion(table, batches, budget_hours, explain)
    found = [_earlier(path) for path in read or ()]
    known = [place for each in found for place in measured(each)]
    distinct(known)  # before anything is run
    if program:
        paths = tuple(_there(path) for path in data or ())
        plan = ProfilePlan(read_script(program), warm_up, steps, timeout, _nodes(nodes, node_rank, master), paths)
        before = _earlier(single) if single else None
        found.append(_measured(plan, devices, machine or platform.node() or "this machine", before))
    if annotate and not job:
        raise InvalidInput("--annotate belongs to --job: it hands the profile to the TrainingJob of the file's name")
    if job:
        _alone(job, program, single, nodes, master)
        cluster = profile_jobs.ProfilingCluster(kubeconfig, context, namespace)
        steps_of_job = JobSteps(warm_up, steps, timeout, tuple(data or ()))
        done, total = _in_cluster(cluster, profile_manifest.read_manifest(job), devices, steps_of_job, machine, annotate)
        found.append(done)
        gpus = gpus or total
    if not found:
        raise InvalidInput(
            "give a training to profile, after `--`: kompakt profile -- python train.py; or --job FILE, or --read FILE"
        )
    if program or job:
        known = replaced(known, measured(found[-1]))
    _show(found[-1], gpus or found[-1].devices, question, known, form)


def _in_cluster(
    cluster: profile_jobs.ProfilingCluster, manifest: Document, devices: int, steps_of_job: JobSteps, machine: str, annotate: bool
) -> tuple[Profile, int]:
    """The profile of a manifest, and all GPUs that it asks for; on request the profile is handed to the job itself."""
    name = manifest["metadata"]["name"]
    if annotate:
        cluster.status(name)  # a job that is not there is told before anything is measured
    each, total = profile_manifest.gpus_of(manifest)
    done = profile_jobs.profile_job(cluster, manifest, devices or each, steps_of_job, machine)
    if annotate:
        cluster.annotate(name, json.dumps(profile_document.to_json(done, total)))
    return done, total


def _alone(job: str, *others: object) -> None:
    if any(other and other != 1 for other in others):
        raise InvalidInput(f"--job {job} runs in a cluster: -- PYTHON SCRIPT, --single, --nodes, --master are for runs here")


def _there(path: str) -> str:
    if not Path(path).exists():
        raise InvalidInput(f"--data {path}: not there; give a file or folder that the training reads")
    return path


def _nodes(count: int, number: int, master: str) -> Nodes:
    host, _, port = master.rpartition(":")
    if count > 1 and not (host and port.isdecimal() and number < count):
        raise InvalidInput(
            f"--nodes {count} needs --node-rank below {count} and --master HOST:PORT, e.g. --master 10.0.0.1:29400"
        )
    if count == 1 and (number or master):
        raise InvalidInput("--node-rank and --master belong to --nodes 2 or more")
    return Nodes(count, number, master)


def _measured(plan: ProfilePlan, devices: int, machine: str, single: Profile | None) -> Profile:
    there = gpus_of(plan.script)
    devices = devices or there or CPU_PROCESSES
    if there and devices > there:
        raise InvalidInput(f"--devices {devices}: this machine has {there} GPUs")
    runs: dict[str, ProfiledRun]
    if plan.nodes.count == 1:
        if single is not None:
            raise InvalidInput("--single belongs to --nodes 2 or more")
        runs, notes = _runs(plan, devices)
    else:
        runs, notes = _across(plan, devices, single), []
        devices *= plan.nodes.count
    kind, alone = "GPU" if there else "CPU process", single.machine if single else machine
    done = Profile(alone, devices, kind, plan.warm_up, plan.steps, runs, (), max(2, plan.nodes.count), machine)
    if devices > 1 and not done.together:
        notes.append("the processes did not train together (no torch.distributed), so nothing is known of the interconnect")
    if not done.data_seen:
        notes.append("no torch DataLoader was seen, so data could not be replaced and nothing is known of their stalls")
    return replace(done, notes=tuple(notes))


def _runs(plan: ProfilePlan, devices: int) -> tuple[dict[str, ProfiledRun], list[str]]:
    """The runs of one machine, and what limits them."""
    runs, notes = dict[str, ProfiledRun](), list[str]()
    if devices > 1:
        runs["one"], _ = _run(plan, "on one device, data from memory", "synthetic", 1)
    all_ = f"on {devices} devices" if devices > 1 else "on one device"
    runs["all"], _ = _run(plan, f"{all_}, data from memory", "synthetic", devices)
    if plan.paths:
        runs["cold"], cached = _run(plan, f"{all_}, cold data", "cold", devices)
        notes += filter(None, [profile_document.cold_note(cached)])
        runs["warm"], _ = _run(plan, f"{all_}, cached data", "warm", devices)
    else:
        notes.append(profile_document.UNTOLD)
        runs["warm"], _ = _run(plan, f"{all_}, real data", "real", devices)
    return runs, notes


def _across(plan: ProfilePlan, devices: int, single: Profile | None) -> dict[str, ProfiledRun]:
    """The run over several machines beside those of a single one."""
    total = plan.nodes.count * devices
    if single is not None and ("all" not in single.runs or single.devices != total):
        raise InvalidInput(f"--single: a profile of {single.devices} devices; expected one of {total} on one machine, as here")
    runs = dict(single.runs) if single else {}
    return runs | {"halves": _run(plan, f"on {total} devices of {plan.nodes.count} machines", "synthetic", devices)[0]}


def _run(plan: ProfilePlan, name: str, data: str, devices: int) -> tuple[ProfiledRun, object]:
    print(f"kompakt: {name} ...", file=sys.stderr, flush=True)
    return measure(plan, name, data, devices)


def _earlier(path: str) -> Profile:
    return document.read(_text(path, "profile"), path)


def _text(path: str, what: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{what} {path}: {reason}; give the path of a text file") from error


def _show(found: Profile, gpus: int, question: PriceQuestion, known: list[Measured], form: ProfileOutput) -> None:
    offered = question.answer(known)
    if form is ProfileOutput.JSON:
        told = profile_document.to_json(found, gpus) | profile_offers.to_json(question, offered)
        typer.echo(json.dumps(told, indent=2))
        return
    console = Console(markup=False)  # names of machines are shown as they are, also [these]
    for part in (*render(found, gpus), *profile_offers.render(question, offered)):
        console.print(part, highlight=False, soft_wrap=True)
