"""`kompakt logs`: what all workers of a TrainingJob print, merged."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from kompakt.following import JobLogs, Ranks, WatchedJob, every_rank, until_now
from kompakt.job_logs import Line
from kompakt.standing import told
from kompakt.training_jobs import Document, TrainingJobs, owner_of
from kompakt_cli.access import Context, Kubeconfig, jobs_of
from kompakt_cli.words import numbers
from kompakt_core.job.choices import MAX_REPLICAS, MAX_ROLES

Name = Annotated[str, typer.Argument(help="of the TrainingJob")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="default: the kubeconfig's")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="go on until the job is over, through all its attempts")]
RankList = Annotated[str, typer.Option(help="these workers only, such as 0,4-7")]
Tail = Annotated[int | None, typer.Option(help="only the last lines of each worker", min=0)]
Container = Annotated[str, typer.Option("-c", "--container", help="default: the one with the GPUs")]
Prefix = Annotated[
    bool | None, typer.Option("--prefix/--no-prefix", help="begin each line with its worker (default: of several)")
]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="when the worker's node received each line")]
MOST_RANKS: Final = MAX_ROLES * MAX_REPLICAS


def logs(
    name: Name,
    namespace: Namespace = None,
    follow: Follow = False,
    ranks: RankList = "",
    tail: Tail = None,
    container: Container = "",
    prefix: Prefix = None,
    timestamps: Timestamps = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print what the workers of a TrainingJob print, merged by time."""
    jobs = jobs_of(kubeconfig, context, namespace)
    job = jobs.get(name)
    wanted = chosen(ranks)
    several = sum(int(role.get("replicas", 1)) for role in job["spec"]["roles"]) > 1
    shown = several if prefix is None else prefix
    found = _followed(jobs, job, container, wanted, tail) if follow else until_now(jobs, job, container, wanted, tail)
    for line in found:
        typer.echo(worded(line, shown, timestamps))


def chosen(ranks: str) -> Ranks:
    """Which workers are meant. Raises InvalidInput."""
    if not ranks:
        return every_rank
    found = numbers(ranks, MOST_RANKS, "--ranks", "rank", f"a job has at most {MOST_RANKS} workers")
    return found.__contains__


def worded(line: Line, prefix: bool, timestamps: bool) -> str:
    """A line as it is printed."""
    return "".join([f"[{line.worker}] " if prefix else "", f"{line.stamp} " if timestamps else "", line.text])


def _followed(jobs: TrainingJobs, job: Document, container: str, wanted: Ranks, tail: int | None) -> Iterator[Line]:
    def say(what: str) -> None:
        typer.echo(f"kompakt: {what}", err=True)

    logs = JobLogs(jobs, container, wanted)
    return WatchedJob(jobs, owner_of(job), logs, tail, on_change=lambda now: say(told(now)), on_trouble=say).lines()
