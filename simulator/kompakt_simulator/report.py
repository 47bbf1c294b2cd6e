"""What runs that stand side by side are printed as: a table, JSON, or a line per job."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields

from rich.table import Table

from kompakt_simulator.cluster import ClusterShape
from kompakt_simulator.columns import PolicyRun, columns, label, reading
from kompakt_simulator.figures import JobRow, job_rows

__all__ = ["PolicyRun", "csv_of", "json_of", "table_of"]


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
    """All runs with their figures; below them how to read them, and the note. "ring" = bandwidth of the jobs' rings as a share
    of the ideal.
    """
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.caption, table.caption_justify = "\n".join((*reading(runs), note)).strip() or None, "left"
    # A narrow terminal folds figures onto a second line; it never cuts them.
    table.add_column("policy", overflow="fold")
    for column in columns(runs):
        table.add_column(f"{column.name}\n{f'({column.unit})' if column.unit else ''}", justify="right", overflow="fold")
    for run, *cells in zip(runs, *(column.cells for column in columns(runs)), strict=True):
        table.add_row(label(run), *cells)
    return table
