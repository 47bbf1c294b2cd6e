"""Moments as they stand in objects (RFC 3339, whole seconds, UTC) and as seconds since 1970."""

from datetime import UTC, datetime


def written(moment: float) -> str:
    """Seconds since 1970 as the API server writes moments: 2026-11-21T10:30:00Z."""
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(text: object) -> float | None:
    """Seconds since 1970; None for anything that is not a moment with a time zone."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None
