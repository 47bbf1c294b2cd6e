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
    ring_share: float | None = None  # see quality.ring_share; None where it is not known


def table_of(title: str, runs: Sequence[Run]) -> Table:
    """All runs with their figures in seconds; "ring" = bandwidth of the jobs' rings as a share of the ideal."""
    table = Table(title=f"{title}; times in seconds", title_justify="left", box=None, padding=(0, 1, 0, 0))
    # A narrow terminal folds figures onto a second line; it never cuts them.
    for name in ("policy", "placement"):
        table.add_column(name, overflow="fold")
    for name in ("avg JCT", "makespan", "avg wait", "p99 JCT", "jobs", "dropped"):
        table.add_column(name, justify="right", overflow="fold")
    with_rings = any(run.ring_share is not None for run in runs)
    if with_rings:
        table.add_column("ring", justify="right", overflow="fold")
    for run in runs:
        ring = [] if not with_rings else ["-" if run.ring_share is None else f"{run.ring_share:.1%}"]
        table.add_row(run.policy, run.placement, *_figures(run.summary), *ring)
    return table


def _figures(summary: Summary) -> list[str]:
    times = (f"{summary.average_jct:.3f}", f"{summary.makespan:.0f}", f"{summary.average_wait:.3f}", f"{summary.p99_jct:.0f}")
    return [*times, str(summary.finished), str(summary.dropped)]
