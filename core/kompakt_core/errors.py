"""The errors of kompakt.

KompaktError
├── InvalidInput    the caller's fault: says what was wrong, where, and what would be right; repeating is useless
├── TryLater        not now: carries the seconds after which trying again makes sense
└── Bug             internal error: an invariant is broken; never caught except to be reported
"""


class KompaktError(Exception):
    """Anything kompakt raises on purpose."""


class InvalidInput(KompaktError):
    """The caller's fault: the message says what was wrong, where, and what would be right."""


class TryLater(KompaktError):
    """Not now: `seconds` says when trying again makes sense."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Bug(KompaktError):
    """Our fault: an invariant of kompakt is broken."""
