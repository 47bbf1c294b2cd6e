"""The table of runs that stand side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from kompakt_simulator.summary import Summary


@dataclass(frozen=True, slots=True)
class Run:
    """One line of the table."""

    policy: str
    placement: str
    summary: Summary


def table_of(title: str, runs: Sequence[Run]) -> Table:
    """All runs with their figures in seconds."""
    table = Table(title=title, title_justify="left")
    for name in ("policy", "placement"):
        table.add_column(name)
    for name in ("average JCT s", "makespan s", "average wait s", "p99 JCT s", "jobs", "dropped"):
        table.add_column(name, justify="right")
    for run in runs:
        table.add_row(run.policy, run.placement, *_figures(run.summary))
    return table


def _figures(summary: Summary) -> list[str]:
    times = (summary.average_jct, summary.makespan, summary.average_wait, summary.p99_jct)
    return [*(f"{time:.3f}" for time in times), str(summary.finished), str(summary.dropped)]
