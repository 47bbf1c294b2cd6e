"""The one place where this process reads the system clock; everything else gets the time as an argument."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - the one place
