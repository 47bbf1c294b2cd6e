"""Reading traces: from the files that come with the simulator by name, from any other file by path."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources

from kompakt_core.errors import InvalidInput
from kompakt_simulator.files import read_bytes, text_of
from kompakt_simulator.jobs import Milliseconds, Trace, TraceJob
from kompakt_simulator.traces.formats import FORMATS, NAMES, TraceFormat, TraceRow
from kompakt_simulator.traces.philly_log import WORK, is_log, jobs_of

BUILT_IN: Mapping[str, str] = {
    "tiresias-60": "tiresias_60_job.csv.gz",
    "muri-trace1": "muri_trace1.csv.gz",
    "muri-trace3-pr": "muri_trace3_pr.csv.gz",
    "muri-trace4": "muri_trace4.csv.gz",
    "muri-cluster": "muri_cluster_trace.csv.gz",
    "philly-0e4a51": "philly_0e4a51_oct_nov.csv.gz",
    "philly-ee9e8c": "philly_ee9e8c_oct_nov.csv.gz",
    "gavel-0e4a51": "gavel_0e4a51.trace.gz",
    "shockwave-900": "shockwave_900.trace.gz",
}


def load_trace(name: str, format_name: str | None = None, others: Iterable[str] = ()) -> Trace:
    """A trace that comes with the simulator, by name, or else a file (plain or gzip), by path. `others`: more names, to be told.

    Without a format it is told by the header, or by the number of fields where there is none. Raises InvalidInput that names
    file, line and column, and what would be right there.
    """
    if format_name is not None and format_name not in NAMES:
        raise InvalidInput(f"format {format_name!r} is unknown; expected one of: {', '.join(NAMES)}")
    if name in BUILT_IN:
        content = (resources.files("kompakt_simulator") / "data" / BUILT_IN[name]).read_bytes()
        return parse_trace(content, name, format_name)
    wanted = f"give the path of a trace file, or one of: {', '.join((*BUILT_IN, *others))}"
    content = read_bytes(name, "trace", wanted)
    return parse_trace(content, name, format_name)


def parse_trace(content: bytes, name: str, format_name: str | None = None) -> Trace:
    """The trace in a file's bytes (plain or gzip). `name` stands for the file in messages. Raises InvalidInput."""
    text = text_of(content, name)
    if format_name in (None, "philly") and is_log(text):
        return _of_log(text, name)
    layout, rows = _told(text, name, format_name)
    jobs: dict[int, tuple[TraceJob, int]] = {}
    for count, (line, row) in enumerate(rows):
        at = f"{name}, line {line}"
        if len(row) != len(layout.columns):
            raise InvalidInput(f"{at}: {len(row)} fields; expected {len(layout.columns)}: {','.join(layout.columns)}")
        job = layout.job(TraceRow(at, count, dict(zip(layout.columns, row, strict=True))))
        if job.number in jobs:
            raise InvalidInput(f"{at}: column job_id: job {job.number} stands above already; expected each job once")
        jobs[job.number] = job, line
    if not jobs:
        raise InvalidInput(f"{name}: no jobs{' below the header' * layout.headed}; expected at least one")
    return Trace(name, _ordered([replace(job, line=line) for job, line in jobs.values()], layout.dated), layout.work)


def _of_log(text: str, name: str) -> Trace:
    jobs, all_ = jobs_of(text, name)
    if not jobs:
        raise InvalidInput(f"{name}: no job that ran; expected at least one")
    return Trace(name, _ordered(jobs, dated=True), WORK, left_out=all_ - len(jobs))


def _ordered(jobs: list[TraceJob], dated: bool) -> tuple[TraceJob, ...]:
    """By submission; the clock of a trace with dates starts at the first."""
    jobs.sort(key=lambda job: (job.submit, job.number))
    start = jobs[0].submit if dated else 0
    return tuple(replace(job, submit=Milliseconds(job.submit - start)) if start else job for job in jobs)


def _told(text: str, name: str, format_name: str | None) -> tuple[TraceFormat, Iterator[tuple[int, Sequence[str]]]]:
    """The layout of a file, and its rows below the header."""
    allowed = [known for known in FORMATS if format_name in (None, known.name)]
    rows = _rows(text, name)
    line, header = next(rows, (1, []))
    for known in allowed:
        if known.headed and tuple(header) == known.columns:
            return known, rows
    first = next((piece for piece in text.splitlines() if piece), "")
    for known in allowed:
        if not known.headed and first.count("\t") + 1 == len(known.columns):
            return known, _tabbed(text)
    wanted = "; or ".join(
        f"{','.join(known.columns)}" if known.headed else f"{len(known.columns)} fields separated by tabs ({known.name})"
        for known in allowed
    )
    shown = ",".join(header)[:200]
    raise InvalidInput(f"{name}, line {line}: unknown header {shown!r}; expected {wanted}")


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of all lines that hold something."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InvalidInput(f"{name}, line {reader.line_num}: {error}; expected comma-separated fields") from error


def _tabbed(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of all lines that hold something; quotes mean nothing in such files."""
    for number, line in enumerate(text.splitlines(), 1):
        if line:
            yield number, line.split("\t")
