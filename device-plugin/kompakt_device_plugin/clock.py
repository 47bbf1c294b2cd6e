"""The one place of this package that reads the clock."""

from datetime import UTC, datetime

from kompakt_core.contract import timestamps


def now_seconds() -> float:
    """Now in seconds since 1970."""
    return datetime.now(UTC).timestamp()  # noqa: TID251 - this is that door


def now_text() -> str:
    """Now as RFC 3339 in whole seconds, as Kubernetes writes times."""
    return timestamps.encode(datetime.now(UTC))  # noqa: TID251 - this is that door
