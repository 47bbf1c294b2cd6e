"""`kompakt top`: TrainingJobs, those with most GPUs first: phase, progress, what compression saves, and what they wait for."""

import time
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from kompakt.standing import why
from kompakt.training_jobs import Document, TrainingJobs
from kompakt_cli.access import Context, Kubeconfig, jobs_of
from kompakt_cli.output import JOB_RESOURCE, Output, OutputFormat, columns, show
from kompakt_cli.words import gigabytes
from kompakt_core.contract import timestamps
from kompakt_core.job.phases import FINISHED

Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="default: the kubeconfig's")]
Everywhere = Annotated[bool, typer.Option("-A", "--all-namespaces", help="jobs of the whole cluster")]
Finished = Annotated[bool, typer.Option("-a", "--all", help="those that are over as well")]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="once more every two seconds, until interrupted")]
SECONDS: Final = 2.0
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def top(
    namespace: Namespace = None,
    all_namespaces: Everywhere = False,
    finished: Finished = False,
    watch: Watch = False,
    output: Output = OutputFormat.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show TrainingJobs: which have GPUs, which wait and why, how far each one is.

    Who holds which GPU, plain pods too: `kompakt explain node NODE`.
    """
    jobs = jobs_of(kubeconfig, context, namespace)
    if watch and output in (OutputFormat.TEXT, OutputFormat.WIDE):
        _watched(jobs, all_namespaces, finished, output)
        return
    found = _found(jobs, all_namespaces, finished)
    answer = {"apiVersion": "v1", "kind": "List", "items": found}
    if not found and output in (OutputFormat.TEXT, OutputFormat.WIDE):
        where = "the cluster" if all_namespaces else f"namespace {jobs.namespace}"
        typer.echo(f"no TrainingJobs in {where}" + ("" if finished else " that are not over (-a shows those too)"), err=True)
        return
    table = rendered(found, all_namespaces, output is OutputFormat.WIDE, time.time())
    show(answer, output, [table], (f"{JOB_RESOURCE}/{one['metadata']['name']}" for one in found))


def _watched(jobs: TrainingJobs, everywhere: bool, finished: bool, output: OutputFormat) -> None:
    with Live(console=Console(), auto_refresh=False, screen=Console().is_terminal) as live:
        while True:
            found = _found(jobs, everywhere, finished)
            live.update(Group(rendered(found, everywhere, output is OutputFormat.WIDE, time.time())), refresh=True)
            time.sleep(SECONDS)


def _found(jobs: TrainingJobs, everywhere: bool, finished: bool) -> list[Document]:
    return ordered(one for one in jobs.every(everywhere) if finished or _status(one).get("phase") not in FINISHED)


def _status(job: Document) -> dict[str, Any]:
    return job.get("status") or {}


def ordered(jobs: Iterable[Document]) -> list[Document]:
    """Those with places first, most GPUs first; then those that wait, the longest first; then those that are over."""

    def key(job: Document) -> tuple[Any, ...]:
        meta, status = job["metadata"], _status(job)
        over, placed = status.get("phase") in FINISHED, bool(status.get("nodes"))
        since = (status.get("scheduling") or {}).get("waitingSince") or meta.get("creationTimestamp", "")
        return over, not placed, -_gpus(job) if placed else 0, since, meta.get("namespace", ""), meta["name"]

    return sorted(jobs, key=key)


def _gpus(job: Document) -> int:
    roles = job["spec"].get("roles") or ()
    return sum(int(role.get("replicas", 1)) * int(role.get("gpusPerReplica", 0)) for role in roles)


def rendered(jobs: list[Document], everywhere: bool, wide: bool, now: float) -> Table:
    """The table. `now`: seconds since 1970."""
    first = ["namespace"] if everywhere else []
    more = ["gb/s", "nodes", "peak", "plain peak", "saved", "overhead", "restarts"] if wide else ["saved"]
    right = ["gpus", "gb/s", "peak", "plain peak", "saved", "overhead", "restarts", "age"]
    table = columns(*first, "name", "phase", "gpus", "level", "progress", "left", *more, "age", "why", right=right)
    for job in jobs:
        table.add_row(*_row(job, everywhere, wide, now))
    return table


def _row(job: Document, everywhere: bool, wide: bool, now: float) -> list[str]:
    meta, status = job["metadata"], _status(job)
    plan, compression = (status.get("scheduling") or {}).get("plan") or {}, status.get("compression") or {}
    saved = f"{compression['ratio']}x" if compression.get("ratio") else "-"
    more = [
        gigabytes(plan["value"]) if plan.get("value") else "-",
        status.get("nodes") or "-",
        size(compression.get("peakBytes")),
        size(compression.get("plainPeakBytes")),
        saved,
        f"{compression['overheadPercent']} %" if "overheadPercent" in compression else "-",
        str(status.get("restarts", 0)),
    ]
    return [
        *([meta.get("namespace", "")] if everywhere else []),
        meta["name"],
        status.get("phase") or "-",
        str(_gpus(job)),
        plan.get("level") or "-",
        progress(status.get("progress") or {}),
        left(status.get("progress") or {}, now),
        *(more if wide else [saved]),
        age(meta.get("creationTimestamp"), now),
        why(status),
    ]


def progress(told: dict[str, Any]) -> str:
    """Steps done, as a share where the whole is known."""
    if "step" not in told:
        return "-"
    total = told.get("total")
    return f"{told['step']}/{total} ({told['step'] / total:.0%})" if total else f"step {told['step']}"


def left(told: dict[str, Any], now: float) -> str:
    """How long until the last step."""
    end = timestamps.seconds(told.get("eta"))
    return "-" if end is None else duration(max(end - now, 0.0))


def age(created: object, now: float) -> str:
    """How long an object exists."""
    began = timestamps.seconds(created)
    return "-" if began is None else duration(max(now - began, 0.0))


def duration(seconds: float) -> str:
    """In the two largest units that it has: 2d3h, 5m10s."""
    rest, words = int(seconds), list[str]()
    for length, unit in _UNITS:
        if rest >= length or (unit == "s" and not words):
            words.append(f"{rest // length}{unit}")
            rest %= length
        elif words:
            break
    return "".join(words[:2])


def size(count: object) -> str:
    """Bytes in MB or GB (powers of ten)."""
    if not isinstance(count, int):
        return "-"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB" if count >= 1e7 else f"{count / 1e6:.2f} MB"
