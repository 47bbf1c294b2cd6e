"""The one place of this package that reads the clock."""

from datetime import UTC, datetime


def now_text() -> str:
    """Now as RFC 3339 in whole seconds, as Kubernetes writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 - this is that door
