"""Reading traces: from the files that come with the simulator by name, from any other file by path."""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_simulator.formats import FORMATS, Format, gpus, whole
from kompakt_simulator.trace import Job, Milliseconds, Trace

BUILT_IN: Mapping[str, str] = {"tiresias-60": "tiresias_60_job.csv.gz", "muri-trace3-pr": "muri_trace3_pr.csv.gz"}
_GZIP_MAGIC = b"\x1f\x8b"
_T = TypeVar("_T")


def load_trace(name: str) -> Trace:
    """A trace that comes with the simulator, by name, or else a CSV file (plain or gzip), by path.

    Raises InvalidInput that names file, line and column, and what would be right there.
    """
    if name in BUILT_IN:
        return parse_trace((resources.files("kompakt_simulator") / "data" / BUILT_IN[name]).read_bytes(), name)
    try:
        content = Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        known = ", ".join(BUILT_IN)
        raise InvalidInput(f"trace {name}: {reason}; give the path of a CSV file, or one of: {known}") from error
    return parse_trace(content, name)


def parse_trace(content: bytes, name: str) -> Trace:
    """The trace in a CSV file's bytes (plain or gzip). `name` stands for the file in messages. Raises InvalidInput."""
    rows = _rows(_text(content, name), name)
    line, header = next(rows, (1, ()))
    layout = FORMATS.get(tuple(header))
    if layout is None:
        wanted = "; or ".join(",".join(known) for known in FORMATS)
        raise InvalidInput(f"{name}, line {line}: unknown header {','.join(header)[:200]!r}; expected {wanted}")
    jobs: dict[int, Job] = {}
    for count, (line, row) in enumerate(rows):
        place = _Place(name, line)
        job = _job(layout, row, place, count)
        if job.number in jobs:
            raise place.refuse(f"column {layout.number}: job {job.number} stands above already; expected each job once")
        jobs[job.number] = job
    if not jobs:
        raise InvalidInput(f"{name}: no jobs below the header; expected at least one")
    ordered = sorted(jobs.values(), key=lambda job: (job.submit, job.number))
    start = ordered[0].submit if layout.dated else 0
    return Trace(name, tuple(replace(job, submit=Milliseconds(job.submit - start)) for job in ordered))


def _text(content: bytes, name: str) -> str:
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInput(f"{name}: broken gzip file ({error}); expected a whole one") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: byte {error.start} is no UTF-8; expected text") from error


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of all lines that hold something."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InvalidInput(f"{name}, line {reader.line_num}: {error}; expected comma-separated fields") from error


class _Place:
    """Where a value stands, for messages."""

    def __init__(self, name: str, line: int) -> None:
        self._at = f"{name}, line {line}"

    def refuse(self, problem: str) -> InvalidInput:
        return InvalidInput(f"{self._at}: {problem}")

    def field(self, column: str, text: str, read: Callable[[str], _T]) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise InvalidInput(f"{self._at}, column {column}: got {text[:80]!r}; expected {error}") from None


def _job(layout: Format, row: Sequence[str], place: _Place, count: int) -> Job:
    if len(row) != len(layout.header):
        raise place.refuse(f"{len(row)} fields; expected {len(layout.header)}: {','.join(layout.header)}")
    fields = dict(zip(layout.header, row, strict=True))
    submit_column, submit = layout.submit
    duration_column, duration = layout.duration
    return Job(
        number=count if layout.number is None else place.field(layout.number, fields[layout.number], whole),
        submit=place.field(submit_column, fields[submit_column], submit),
        duration=place.field(duration_column, fields[duration_column], duration),
        gpus=place.field(layout.gpus, fields[layout.gpus], gpus),
    )
