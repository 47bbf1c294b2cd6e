"""Running columns: each trace of a column under every policy, its figures in a file of a folder, so that a run can go on.

A file belongs to the code that made it. What was measured with other code of simulator, policies or columns is refused, since a
table of both would compare nothing.
"""

import hashlib
import inspect
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

import kompakt_core
import kompakt_simulator
from benchmarks.policies import MODELS, SIX
from benchmarks.protocol.columns import COLUMNS, ProtocolColumn
from benchmarks.protocol.entries import RUN
from benchmarks.protocol.figures import PolicyFigures, simulated
from kompakt_core.errors import InvalidInput

_HERE: Final = Path(__file__).parent
# All that a figure depends on: code and traces. What runs and judges columns may change without a new measurement.
_PACKAGES: Final = tuple(Path(inspect.getfile(package)).parent for package in (kompakt_core, kompakt_simulator))
_MEASURES: Final = tuple(_HERE / f"{name}.py" for name in ("columns", "generator", "figures"))


class ColumnRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One trace of a column under all policies. `code`: of what made it. `processor_s`: what it took."""

    column: str
    seed: int
    code: str
    processor_s: float
    figures: dict[str, PolicyFigures]


@dataclass(frozen=True, slots=True)
class ColumnTask:
    column: str
    seed: int

    @property
    def file(self) -> str:
        return f"{self.column}-{self.seed}.json"


@cache
def code() -> str:
    """A digest of all that a figure depends on: values of benchmarks/policies.py too, though not its text."""
    digest = hashlib.sha256(repr((RUN, COLUMNS, MODELS, SIX)).encode())
    inside = [path for folder in (*_PACKAGES, _HERE / "data") for path in sorted(folder.rglob("*"))]
    for path in (*inside, *_MEASURES):
        if path.suffix in (".py", ".gz", ".json", ".csv", ".yaml"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def measured(task: ColumnTask) -> ColumnRun:
    """Simulate one trace of a column under every policy."""
    made_by, began = code(), time.process_time()  # before: files may be edited meanwhile
    figures = simulated(task.column, task.seed)
    return ColumnRun(task.column, task.seed, made_by, time.process_time() - began, figures)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where the figures lie, a file for each trace of a column."""

    path: Path

    def read(self, task: ColumnTask) -> ColumnRun | None:
        """What was measured before; None where nothing was. Raises InvalidInput for another's file or one of other code."""
        path = self.path / task.file
        try:
            run = msgspec.json.decode(path.read_bytes(), type=ColumnRun)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}; expected a file that can be read, or name another folder") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path}: {error}; expected what --resume wrote; remove it or name another folder") from None
        if (run.column, run.seed) != (task.column, task.seed) or set(run.figures) != {entry.label for entry in RUN}:
            raise InvalidInput(f"{path}: not of column {task.column}, seed {task.seed}, and these policies; name another folder")
        if run.code != code():
            raise InvalidInput(f"{path}: measured with other code ({run.code}, this is {code()}); name another folder")
        return run

    def write(self, run: ColumnRun) -> None:
        """Whole or not at all: a run that is stopped here leaves no half of a file. Raises InvalidInput where it cannot."""
        path = self.path / ColumnTask(run.column, run.seed).file
        half = path.with_suffix(".part")
        try:
            half.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")
            os.replace(half, path)
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}; expected a folder with room that can be written") from None


def tasks(columns: Sequence[ProtocolColumn], quick: bool) -> list[ColumnTask]:
    """Trace by trace over all columns, so that a run that is stopped has something of each."""
    pairs = [(at, column.name, seed) for column in columns for at, seed in enumerate(column.seeds(quick))]
    order = {column.name: index for index, column in enumerate(columns)}
    return [ColumnTask(name, seed) for _, name, seed in sorted(pairs, key=lambda pair: (pair[0], order[pair[1]]))]


def opened(path: Path) -> RunFolder:
    """The folder, made if need be. Raises InvalidInput where that, or a file in it, cannot be: before hours of simulation."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise InvalidInput(
            f"--resume {path}: {error.strerror}; expected a folder that can be written, or a name for a new one"
        ) from None
    return RunFolder(path)


def had(todo: Iterable[ColumnTask], folder: RunFolder) -> list[ColumnRun]:
    """What the folder has of these."""
    return [run for task in todo if (run := folder.read(task)) is not None]


def finished(todo: Iterable[ColumnTask], folder: RunFolder, processes: int) -> Iterator[ColumnRun]:
    """Every task's run, first those that the folder has, each new one once its file is written."""
    open_tasks = []
    for task in todo:
        run = folder.read(task)
        if run is None:
            open_tasks.append(task)
        else:
            yield run
    for run in _measured(open_tasks, processes):
        folder.write(run)
        yield run


def _measured(open_tasks: Sequence[ColumnTask], processes: int) -> Iterator[ColumnRun]:
    if processes == 1 or not open_tasks:
        yield from map(measured, open_tasks)
        return
    with _pool(processes) as pool:
        futures: list[Future[ColumnRun]] = [pool.submit(measured, task) for task in open_tasks]
        for future in as_completed(futures):
            yield future.result()


@contextmanager
def _pool(processes: int) -> Iterator[Executor]:
    """Whoever stops the run waits for the traces that are being simulated, not for all that were planned."""
    # A thread draws the progress: a forked process would have its locks, and nobody who opens them.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
