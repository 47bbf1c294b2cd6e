"""Moments as they stand in objects: RFC 3339 in UTC. Whole seconds (metav1.Time), in Leases microseconds (metav1.MicroTime)."""

import re
from datetime import UTC, datetime
from typing import Final

from kompakt_core.errors import InvalidInput

EXAMPLE: Final = "2026-01-31T12:00:00Z"
_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def encode(moment: datetime | float) -> str:
    """A moment, as such or in seconds since 1970: 2026-01-31T12:00:00Z. Parts of a second are dropped."""
    return f"{_utc(moment).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def encode_micro(moment: datetime | float) -> str:
    """The same with six digits of the second: 2026-01-31T12:00:00.000000Z."""
    return f"{_utc(moment).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def decode(text: object, where: str = "") -> datetime:
    """The moment, in UTC; of parts of a second up to six digits. `where` names the field in the error.

    Raises:
        InvalidInput: it is none, or has no time zone.
    """
    if isinstance(text, str) and _RFC_3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):  # the 32nd of a month, the year 0
            pass
    shown = repr(text)[:80]
    raise InvalidInput(f"{f'{where}: ' if where else ''}{shown} is not a moment in RFC 3339; right would be e.g. {EXAMPLE}")


def canonical(text: object, where: str = "") -> str:
    """The same moment as `encode` writes it. InvalidInput as `decode`."""
    return encode(decode(text, where))


def seconds(text: object) -> float | None:
    """The moment in seconds since 1970; None for anything that is none: for what may be absent, or written by others."""
    try:
        return decode(text).timestamp()
    except InvalidInput:
        return None


def _utc(moment: datetime | float) -> datetime:
    return moment.astimezone(UTC) if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
