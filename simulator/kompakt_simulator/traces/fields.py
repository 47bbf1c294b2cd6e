"""Readers of single fields. Each raises ValueError with what would be right."""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

from kompakt_simulator.jobs import Milliseconds

_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,6})?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)
_SIGNED = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}", re.ASCII)
_EPOCH = datetime(1970, 1, 1)

TimeReader = Callable[[str], Milliseconds]


def whole(text: str) -> int:
    """A whole number in decimal digits."""
    if not _WHOLE.fullmatch(text):
        raise ValueError("a whole number of at most 15 digits")
    return int(text)


def gpus(text: str) -> int:
    """A number of GPUs, at least 1."""
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= 1_000_000:
        raise ValueError("a whole number of GPUs from 1 to 1000000")
    return int(text)


def priority(text: str) -> int:
    """A whole number, 0 where the field is empty."""
    if text and not _SIGNED.fullmatch(text):
        raise ValueError("a whole number of at most 9 digits, or nothing")
    return int(text or "0")


def ratio(text: str) -> float | None:
    """Communication per computing, None where the field is empty."""
    if text and (not _NUMBER.fullmatch(text) or float(text) > 1_000_000):
        raise ValueError("a number from 0 to 1000000, or nothing")
    return float(text) if text else None


def name(text: str) -> str:
    """Any text of up to 200 characters."""
    if len(text) > 200:
        raise ValueError("a name of at most 200 characters")
    return text


def _scaled(text: str, milliseconds: int, unit: str) -> Milliseconds:
    wanted = f"a number of {unit}, at least 0, no finer than a millisecond"
    if not _NUMBER.fullmatch(text):
        raise ValueError(wanted)
    exact = Decimal(text) * milliseconds
    if exact != int(exact):
        raise ValueError(wanted)
    return Milliseconds(int(exact))


def seconds(text: str) -> Milliseconds:
    """A time in seconds."""
    return _scaled(text, 1000, "seconds")


def milliseconds(text: str) -> Milliseconds:
    """A time in milliseconds."""
    return _scaled(text, 1, "milliseconds")


def timestamp(text: str) -> Milliseconds:
    """A date and time of day, counted from 1970 without regard to time zones."""
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


def above_zero(read: TimeReader) -> TimeReader:
    """The same reader, which refuses 0."""

    def checked(text: str) -> Milliseconds:
        time = read(text)
        if time == 0:
            raise ValueError("a time above 0")
        return time

    return checked
