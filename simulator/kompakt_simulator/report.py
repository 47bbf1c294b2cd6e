"""What runs that stand side by side are printed as: a table, JSON, or a line per job."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields

from rich.table import Table

from kompakt_simulator.cluster import ClusterShape
from kompakt_simulator.figures import JobRow, Summary, job_rows
from kompakt_simulator.simulation import SimulationResult


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy's run."""

    policy: str
    summary: Summary
    outcome: SimulationResult
    ring_share: float | None = None  # see quality.ring_share; None where it is not known


def json_of(runs: Sequence[PolicyRun], shape: ClusterShape | None = None) -> str:
    """An object per policy name; with the shape of the cluster each has an object per job under `jobs`."""
    told: dict[str, dict[str, object]] = {run.policy: dict(run.summary.as_json()) for run in runs}
    if shape is not None:
        for run in runs:
            told[run.policy]["jobs"] = [asdict(row) for row in job_rows(run.outcome, shape)]
    return json.dumps(told, indent=2)


def csv_of(runs: Sequence[PolicyRun], shape: ClusterShape) -> str:
    """A line per policy and job below a header; what a job does not have is empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("policy", *(column.name for column in fields(JobRow))))
    for run in runs:
        lines.writerows((run.policy, *astuple(row)) for row in job_rows(run.outcome, shape))
    return text.getvalue()


def table_of(title: str, runs: Sequence[PolicyRun], note: str = "") -> Table:
    """All runs with their figures in seconds; "ring" = bandwidth of the jobs' rings as a share of the ideal; `note`: below."""
    table = Table(title=f"{title}; times in seconds", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.caption, table.caption_justify = note or None, "left"
    # A narrow terminal folds figures onto a second line; it never cuts them.
    table.add_column("policy", overflow="fold")
    heads = ("avg JCT", "p50 JCT", "p99 JCT", "avg queue", "makespan", "comm/job", "restart/job", "GPUs held", "stops", "refused")
    for name in heads:
        table.add_column(name, justify="right", overflow="fold")
    with_rings = any(run.ring_share is not None for run in runs)
    if with_rings:
        table.add_column("ring", justify="right", overflow="fold")
    for run in runs:
        ring = [] if not with_rings else ["-" if run.ring_share is None else f"{run.ring_share:.1%}"]
        table.add_row(run.policy, *figures(run.summary), *ring)
    return table


def figures(summary: Summary) -> list[str]:
    """The cells of one line, in the order of the table's columns."""
    times = [f"{summary.avg_jct_s:.3f}", f"{summary.p50_jct_s:.0f}", f"{summary.p99_jct_s:.0f}", f"{summary.avg_queue_s:.3f}"]
    costs = [f"{summary.makespan_s:.0f}", f"{summary.comm_s_per_job:.1f}", f"{summary.restart_s_per_job:.1f}"]
    return [*times, *costs, f"{summary.gpu_utilization:.1%}", str(summary.preemptions), str(summary.refused)]
