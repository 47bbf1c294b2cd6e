"""The one place of this package that reads the clock."""

from datetime import UTC, datetime

from kompakt_core.contract import timestamps


def now_text() -> str:
    """Now as RFC 3339 in whole seconds, as Kubernetes writes times."""
    return timestamps.encode(datetime.now(UTC))  # noqa: TID251 - this is that door
