"""`benchmarks.policies --protocol`: runs what is missing with a bar of progress, prints the table."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.protocol.columns import chosen
from benchmarks.protocol.runs import ColumnRun, ColumnTask, RunFolder, code, finished, had, opened, tasks
from benchmarks.protocol.table import lines
from kompakt_core.errors import InvalidInput

FOLDER: Final = Path(".protocol")


def protocol(names: str | None, quick: bool, folder: Path | None, processes: int, so_far: bool = False) -> None:
    """The whole protocol, or some columns of it, to standard output. Raises InvalidInput for what was given wrong.

    `so_far`: nothing is simulated, and columns without a trace in the folder are left out.
    """
    if not 1 <= processes <= 64:
        raise InvalidInput(f"--processes {processes}; expected a number from 1 to 64")
    columns, path = chosen(names), folder or FOLDER
    todo = tasks(columns, quick)
    some = had(todo, RunFolder(path)) if so_far else _shown(todo, opened(path), processes)
    if not some:
        raise InvalidInput(f"--so-far: no figures of these columns in {path}; expected a folder of an earlier run")
    runs = {column.name: [run for run in some if run.column == column.name] for column in columns}
    runs = {name: sorted(each, key=lambda run: run.seed) for name, each in runs.items() if each}
    took = sum(run.processor_s for each in runs.values() for run in each)
    count = sum(len(each) for each in runs.values())
    print(f"{len(runs)} columns, {count} traces, {took:.0f} s of a processor, code {code()}\n")
    print(*lines(runs), sep="\n")


def _shown(todo: Sequence[ColumnTask], folder: RunFolder, processes: int) -> list[ColumnRun]:
    with _progress() as progress:
        bar, runs = progress.add_task("traces", total=len(todo)), []
        for run in finished(todo, folder, processes):
            runs.append(run)
            progress.update(bar, advance=1, description=run.column)
    return runs


def _progress() -> Progress:
    """On standard error: the table alone goes into a file."""
    shown = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*shown, console=Console(file=sys.stderr))
