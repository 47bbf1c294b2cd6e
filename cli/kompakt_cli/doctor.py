"""`kompakt doctor`: what is not as it should be in a cluster and on this machine, and what to do about it."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kompakt_cli.access import DEFAULT_NAMESPACE, Context, Kubeconfig, Release
from kompakt_cli.finding import Finding, Health, counted, document, exit_code, not_checked, problem
from kompakt_cli.output import Output, OutputFormat, show
from kompakt_core.errors import InvalidInput

COLOURS: Final = {Health.OK: "green", Health.NOT_CHECKED: "dim", Health.WARNING: "yellow", Health.PROBLEM: "bold red"}


class Subject(StrEnum):
    """What to look at."""

    CLUSTER = "cluster"
    MACHINE = "machine"


What = Annotated[Subject | None, typer.Argument(help="cluster or machine; without it both", case_sensitive=False)]
Python = Annotated[str | None, typer.Option(metavar="PROGRAM", help="the Python that trains (default: python of your PATH)")]


def doctor(
    subject: What = None,
    output: Output = OutputFormat.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    release: Release = DEFAULT_NAMESPACE,
    python: Python = None,
) -> None:
    """Check a cluster and this machine, and say how to cure what is not as it should be. Changes nothing.

    Exit code 0: no problem, warnings allowed; 1: a problem; 2: bad input, or `doctor cluster` without a cluster that answers.
    """
    found: list[tuple[str, Sequence[Finding]]] = []
    if subject is not Subject.MACHINE:
        found.append((Subject.CLUSTER, _cluster(kubeconfig, context, release, must=subject is Subject.CLUSTER)))
    if subject is not Subject.CLUSTER:
        found.append((Subject.MACHINE, _machine(python)))
    show(document(found), output, _text(found))
    if code := exit_code([one for _, findings in found for one in findings]):
        raise typer.Exit(code)


def _cluster(kubeconfig: str | None, context: str | None, release: str, *, must: bool) -> Sequence[Finding]:
    """`must`: no cluster is an error. Else only a kubeconfig that was named or that leads nowhere is more than a remark."""
    from kompakt_cli.doctor_cluster import findings, read

    try:
        return findings(read(kubeconfig, context, release))
    except InvalidInput as error:
        if must or kubeconfig or context:
            raise
        said, _, cure = str(error).partition("; ")
        kind = problem if "cannot be reached" in said else not_checked
        return [kind("cluster", said, cure or "name a kubeconfig with --kubeconfig or KUBECONFIG")]


def _machine(python: str | None) -> Sequence[Finding]:
    from kompakt_cli.doctor_machine import findings
    from kompakt_cli.doctor_probe import read

    return findings(read(python))


def _text(found: Sequence[tuple[str, Sequence[Finding]]]) -> Iterator[RenderableType]:
    for number, (subject, findings) in enumerate(found):
        yield Text(f"{chr(10) if number else ''}{subject.capitalize()}: {counted(findings)}", style="bold")
        yield Padding(_table(findings), (0, 0, 0, 2))


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in findings:
        table.add_row(Text(one.health, COLOURS[one.health]), Text(one.check), Text(one.found))
        if one.cure:
            table.add_row("", "", Text(f"-> {one.cure}", "cyan"))
    return table
