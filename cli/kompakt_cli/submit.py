"""`kompakt submit`: makes TrainingJobs, from manifests or from a few options and a command."""

from typing import Annotated

import typer

from kompakt.following import JobLogs, WatchedJob
from kompakt.new_job import Document, NewJob, checked
from kompakt.standing import told
from kompakt.training_jobs import TrainingJobs, owner_of
from kompakt_cli.access import Context, Kubeconfig, jobs_of
from kompakt_cli.job_files import environment, in_namespace, read_jobs
from kompakt_cli.output import JOB_RESOURCE, OutputFormat, document_text
from kompakt_cli.words import word_of
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.errors import InvalidInput
from kompakt_core.job.phases import Phase
from kompakt_core.patterns.names import Pattern

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE... | -- COMMAND...", help="manifests, or - for standard input; with --image, the workers' command"
    ),
]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="default: the manifest's, else the kubeconfig's")]
Image = Annotated[str, typer.Option(help="image of each worker, instead of a manifest")]
Name = Annotated[str, typer.Option(help="name of the job")]
Workers = Annotated[int, typer.Option(help="pods", min=1)]
Gpus = Annotated[int, typer.Option(help="GPUs of each pod", min=0)]
PatternName = Annotated[str, typer.Option(help="how ranks talk, such as Ring (default: as the cluster has it)")]
Target = Annotated[str, typer.Option("--compress", help="compress activations with this targetGradientError, such as 0.01")]
Env = Annotated[list[str] | None, typer.Option("-e", "--env", help="KEY=VALUE for each worker", metavar="KEY=VALUE")]
DryRun = Annotated[str, typer.Option(help="client: check and print; server: the API server checks as well", metavar="WHERE")]
Wait = Annotated[bool, typer.Option("--wait", help="until the job is over; the exit code is 1 where it failed")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="the same, with what the workers print")]
Output = Annotated[OutputFormat | None, typer.Option("-o", "--output", help="name, yaml or json", case_sensitive=False)]


def submit(
    words: Words = None,
    namespace: Namespace = None,
    image: Image = "",
    name: Name = "",
    workers: Workers = 1,
    gpus: Gpus = 1,
    pattern: PatternName = "",
    compress: Target = "",
    env: Env = None,
    dry_run: DryRun = "",
    wait: Wait = False,
    follow: Follow = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Make TrainingJobs from manifests, or one from an image and a command.

    A job that exists is not changed: `kubectl apply` does that.
    """
    if dry_run not in ("", "client", "server"):
        raise InvalidInput(f"--dry-run: {dry_run!r}; right would be client or server")
    jobs = _documents(words or [], NewJob(name, image, (), workers, gpus, pattern, compress, environment(env or [])))
    if (wait or follow) and (len(jobs) != 1 or dry_run):
        raise InvalidInput("--wait and --follow take one job, and no --dry-run")
    if dry_run == "client":
        _print([_in(job, namespace) for job in jobs], output or OutputFormat.YAML, "would be created")
        return
    made = _made(jobs, namespace, kubeconfig, context, dry_run=bool(dry_run))
    _print(made, output or OutputFormat.TEXT, "would be created" if dry_run else "created")
    if not (dry_run or wait or follow or output):
        typer.echo(_next(made), err=True)
    if wait or follow:
        where = jobs_of(kubeconfig, context, made[0]["metadata"]["namespace"])
        raise typer.Exit(_until_over(where, owner_of(made[0]), logs=follow))


def _documents(words: list[str], wanted: NewJob) -> list[Document]:
    """What is to be made. Raises InvalidInput where that is not clear, or would be refused."""
    if not wanted.image:
        if wanted != NewJob("", ""):
            raise InvalidInput("options of a job need --image; with manifests, write them there")
        if not words:
            raise InvalidInput("name a manifest, or an --image and a command after --")
        return read_jobs(words)
    if not wanted.name:
        raise InvalidInput("--image needs --name, the job's name")
    kind = word_of(Pattern, wanted.pattern, "--pattern").value if wanted.pattern else ""
    full = NewJob(wanted.name, wanted.image, words, wanted.workers, wanted.gpus, kind, wanted.target, wanted.env)
    return [checked(full.document(), "the job of these options")]


def _in(job: Document, namespace: str | None) -> Document:
    """The manifest with the namespace that was asked for, if any."""
    where = in_namespace(job, namespace, "")
    return {**job, "metadata": {**job["metadata"], **({"namespace": where} if where else {})}}


def _made(
    jobs: list[Document], asked: str | None, kubeconfig: str | None, context: str | None, *, dry_run: bool
) -> list[Document]:
    """The jobs as the API server has them. All are tried first: either each one can be made, or none is."""
    default = jobs_of(kubeconfig, context, asked)
    targets = [in_namespace(job, asked, default.namespace) for job in jobs]
    places = {where: jobs_of(kubeconfig, context, where) for where in targets}
    tried = [places[where].create(job, dry_run=True) for where, job in zip(targets, jobs, strict=True)]
    return tried if dry_run else [places[where].create(job) for where, job in zip(targets, jobs, strict=True)]


def _until_over(jobs: TrainingJobs, owner: JobOwner, *, logs: bool) -> int:
    """Show a job's phases, with `logs` what its workers print as well, until it is over; 1 where it failed."""

    def say(what: str) -> None:
        typer.echo(f"kompakt: {what}", err=True)

    watched = WatchedJob(jobs, owner, JobLogs(jobs) if logs else None, on_change=lambda job: say(told(job)), on_trouble=say)
    for line in watched.lines():
        typer.echo(str(line))
    return int(watched.job["status"]["phase"] == Phase.FAILED)


def _next(made: list[Document]) -> str:
    meta = made[0]["metadata"]
    one = f"`kompakt explain job {meta['name']} -n {meta['namespace']}` says where it goes, or why it waits"
    return one if len(made) == 1 else "`kompakt top` shows which of them wait, and why"


def _print(jobs: list[Document], output: OutputFormat, done: str) -> None:
    if output in (OutputFormat.YAML, OutputFormat.JSON):
        several = {"apiVersion": "v1", "kind": "List", "items": jobs}
        typer.echo(document_text(jobs[0] if len(jobs) == 1 else several, output))
        return
    for meta in (job["metadata"] for job in jobs):
        name = f"{JOB_RESOURCE}/{meta.get('name') or meta.get('generateName')}"
        typer.echo(name if output is OutputFormat.NAME else f"{name} {done}")
