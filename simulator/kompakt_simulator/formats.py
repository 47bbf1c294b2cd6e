"""The trace formats that can be read: which columns a file has, in which unit its times are."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from kompakt_simulator.trace import Milliseconds

_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,6})?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}", re.ASCII)
_EPOCH = datetime(1970, 1, 1)

Instant = Callable[[str], Milliseconds]


def whole(text: str) -> int:
    """A whole number in decimal digits. Raises ValueError with what would be right."""
    if not _WHOLE.fullmatch(text):
        raise ValueError("a whole number of at most 15 digits")
    return int(text)


def gpus(text: str) -> int:
    """A number of GPUs, at least 1. Raises ValueError with what would be right."""
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= 1_000_000:
        raise ValueError("a whole number of GPUs from 1 to 1000000")
    return int(text)


def _scaled(text: str, milliseconds: int, unit: str) -> Milliseconds:
    wanted = f"a number of {unit}, at least 0, no finer than a millisecond"
    if not _NUMBER.fullmatch(text):
        raise ValueError(wanted)
    exact = Decimal(text) * milliseconds
    if exact != int(exact):
        raise ValueError(wanted)
    return Milliseconds(int(exact))


def seconds(text: str) -> Milliseconds:
    """A time in seconds. Raises ValueError with what would be right."""
    return _scaled(text, 1000, "seconds")


def milliseconds(text: str) -> Milliseconds:
    """A time in milliseconds. Raises ValueError with what would be right."""
    return _scaled(text, 1, "milliseconds")


def timestamp(text: str) -> Milliseconds:
    """A date and time of day, counted from 1970 without regard to time zones. Raises ValueError with what would be right."""
    wanted = "a date and time such as 2017-10-09 07:01:55, not before 1970"
    if not _STAMP.fullmatch(text):
        raise ValueError(wanted)
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except ValueError:
        raise ValueError(wanted) from None
    if since.days < 0:
        raise ValueError(wanted)
    return Milliseconds(int(since.total_seconds()) * 1000)


def above_zero(read: Instant) -> Instant:
    """The same reader, which refuses 0."""

    def checked(text: str) -> Milliseconds:
        time = read(text)
        if time == 0:
            raise ValueError("a time above 0")
        return time

    return checked


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file, known by its header.

    `number` None: jobs are counted by their place in the file, from 0. `dated`: the clock starts with the first submission.
    """

    name: str
    header: tuple[str, ...]
    number: str | None
    submit: tuple[str, Instant]
    duration: tuple[str, Instant]
    gpus: str
    dated: bool = False


TIRESIAS = Format(
    "Tiresias",
    ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"),
    number="job_id",
    submit=("submit_time", seconds),
    duration=("duration", above_zero(seconds)),
    gpus="num_gpu",
)
# Muri's simulator grew from that of Tiresias; its files name the same columns, but count milliseconds.
MURI = Format(
    "Muri",
    (
        *("job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "interval"),
        *("iteration_time", "resource_time_0", "resource_time_1", "resource_time_2", "priority"),
    ),
    number="job_id",
    submit=("submit_time", milliseconds),
    duration=("duration", above_zero(milliseconds)),
    gpus="num_gpu",
)
# The selection of the Philly trace in the artifact of Pollux (OSDI'21): simulator/traces/philly.csv.
PHILLY = Format(
    "Philly",
    ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
    number=None,
    submit=("timestamp", timestamp),
    duration=("duration", above_zero(seconds)),
    gpus="num_gpus",
    dated=True,
)

FORMATS: Mapping[tuple[str, ...], Format] = {known.header: known for known in (TIRESIAS, MURI, PHILLY)}
