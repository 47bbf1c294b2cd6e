"""The trace formats that can be read: which columns a file has, which of them is the work of a job, and in which unit."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.traces import fields as f
from kompakt_simulator.traces.philly_log import WORK as LOG_WORK

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line of a file, by column; `at` says where it stands, `count` how many came before it."""

    at: str
    count: int
    cells: Mapping[str, str]

    def read(self, column: str, reader: Callable[[str], _T]) -> _T:
        """The value of a column. Raises InvalidInput that names the place and what would be right."""
        try:
            return reader(self.cells[column])
        except ValueError as error:
            raise InvalidInput(f"{self.at}, column {column}: got {self.cells[column][:80]!r}; expected {error}") from None


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One layout of a file. `work` says in words which column is the work of a job and its unit.

    `headed`: the first line names the columns; else there is none, and fields are separated by tabs.
    `numbered`: a column gives each job its number, else jobs are counted from 0. `dated`: the clock starts with the first job.
    """

    name: str
    columns: tuple[str, ...]
    work: str
    job: Callable[[TraceRow], TraceJob]
    headed: bool = True
    numbered: bool = True
    dated: bool = False


def _kompakt(row: TraceRow) -> TraceJob:
    return TraceJob(
        number=row.read("job_id", f.whole),
        submit=row.read("submit_s", f.seconds),
        duration=row.read("duration_s", f.above_zero(f.seconds)),
        gpus=row.read("gpus", f.gpus),
        model=row.read("model", f.name),
        comm_ratio=row.read("comm_ratio", f.ratio),
        priority=row.read("priority", f.priority),
    )


def _listed(time: f.TimeReader) -> Callable[[TraceRow], TraceJob]:
    """Tiresias and, grown from its simulator, Muri: the same columns, other units."""

    def job(row: TraceRow) -> TraceJob:
        return TraceJob(
            number=row.read("job_id", f.whole),
            submit=row.read("submit_time", time),
            duration=row.read("duration", f.above_zero(time)),
            gpus=row.read("num_gpu", f.gpus),
            model=row.cells.get("model_name", ""),
        )

    return job


def _pollux(row: TraceRow) -> TraceJob:
    return TraceJob(
        number=row.count,
        submit=row.read("timestamp", f.timestamp),
        duration=row.read("duration", f.above_zero(f.seconds)),
        gpus=row.read("num_gpus", f.gpus),
    )


def _gavel(row: TraceRow) -> TraceJob:
    gpus, steps = row.read("scale_factor", f.gpus), row.read("total_steps", f.whole)
    model = row.read("job_type", f.name)
    rates = _steps_per_second().get(model)
    if rates is None or steps == 0:
        known = ", ".join(sorted(_steps_per_second()))
        raise InvalidInput(f"{row.at}: {steps} steps of {model!r}; expected at least one step of a measured model: {known}")
    measured = max(number for number in rates if number <= gpus)
    return TraceJob(
        number=row.count,
        submit=row.read("arrival_time", f.seconds),
        duration=Milliseconds(max(1, round(steps / rates[measured] * 1000))),
        gpus=gpus,
        model=model,
    )


def _shockwave(row: TraceRow) -> TraceJob:
    return TraceJob(
        number=row.count,
        submit=row.read("arrival_time", f.seconds),
        duration=row.read("duration", f.above_zero(f.seconds)),
        gpus=row.read("scale_factor", f.gpus),
        model=row.read("job_type", f.name),
    )


@cache
def _steps_per_second() -> Mapping[str, Mapping[int, float]]:
    """Gavel's measured steps/s on V100 by model and number of GPUs. Every model was measured on one GPU."""
    raw = json.loads((resources.files("kompakt_simulator") / "data" / "gavel_v100_steps_per_s.json").read_text("utf-8"))
    return {model: {int(gpus): rate for gpus, rate in rates.items()} for model, rates in raw.items()}


_TIRESIAS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")
_MURI = (
    *("job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "interval"),
    *("iteration_time", "resource_time_0", "resource_time_1", "resource_time_2", "priority"),
)
_POLLUX = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_GAVEL = ("job_type", "command", "steps_argument", "needs_data", "total_steps", "arrival_time", "scale_factor")
_SHOCKWAVE = (
    *("job_type", "command", "folder", "steps_argument", "needs_data", "total_steps", "scale_factor"),
    *("mode", "weight", "slo", "duration", "arrival_time"),
)
_OURS = ("job_id", "submit_s", "gpus", "duration_s", "model", "comm_ratio", "priority")
_SECONDS = "duration, in seconds"

FORMATS: tuple[TraceFormat, ...] = (
    TraceFormat("kompakt", _OURS, "duration_s, in seconds without communication", _kompakt),
    TraceFormat("tiresias", _TIRESIAS, _SECONDS, _listed(f.seconds)),
    TraceFormat("muri", _MURI, "duration, in milliseconds", _listed(f.milliseconds)),
    TraceFormat("philly", ("job_id", "num_gpu", "submit_time", "duration"), _SECONDS, _listed(f.seconds)),
    # The selection of the Philly trace in the artifact of Pollux (OSDI'21): simulator/traces/philly.csv; known by both names.
    TraceFormat("philly", _POLLUX, _SECONDS, _pollux, numbered=False, dated=True),
    TraceFormat("pollux", _POLLUX, _SECONDS, _pollux, numbered=False, dated=True),
    TraceFormat("gavel", _GAVEL, "total_steps, in steps at the measured rate of V100 GPUs", _gavel, headed=False, numbered=False),
    TraceFormat("shockwave", _SHOCKWAVE, _SECONDS, _shockwave, headed=False, numbered=False),
)
NAMES = tuple(dict.fromkeys(known.name for known in FORMATS))
WORK = "; ".join(dict.fromkeys(f"{known.name}: {known.work}" for known in FORMATS)) + f"; philly's job log: {LOG_WORK}"
