"""`benchmarks.policies --protocol`: runs what is missing with a bar of progress, prints the table."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.protocol.columns import ProtocolColumn, chosen
from benchmarks.protocol.runs import ColumnRun, RunFolder, code, finished, opened, tasks
from benchmarks.protocol.table import lines
from kompakt_core.errors import InvalidInput

FOLDER: Final = Path(".protocol")


def protocol(names: str | None, quick: bool, folder: Path | None, processes: int) -> None:
    """The whole protocol, or some columns of it, to standard output. Raises InvalidInput for what was given wrong."""
    if not 1 <= processes <= 64:
        raise InvalidInput(f"--processes {processes}; expected a number from 1 to 64")
    columns, where = chosen(names), opened(folder or FOLDER)
    runs = _by_column(columns, quick, where, processes)
    took = sum(run.processor_s for each in runs.values() for run in each)
    count = sum(len(each) for each in runs.values())
    print(f"{len(runs)} columns, {count} traces, {took:.0f} s of a processor, code {code()}\n")
    print(*lines(runs), sep="\n")


def _by_column(columns: Sequence[ProtocolColumn], quick: bool, folder: RunFolder, processes: int) -> dict[str, list[ColumnRun]]:
    runs: dict[str, list[ColumnRun]] = {column.name: [] for column in columns}
    todo = tasks(columns, quick)
    with _progress() as progress:
        bar = progress.add_task("traces", total=len(todo))
        for run in finished(todo, folder, processes):
            runs[run.column].append(run)
            progress.update(bar, advance=1, description=run.column)
    return {name: sorted(each, key=lambda run: run.seed) for name, each in runs.items()}


def _progress() -> Progress:
    """On standard error: the table alone goes into a file."""
    shown = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*shown, console=Console(file=sys.stderr))
