"""Activation compression inside training pods; knows no other package of kompakt.

For use as a library: `compression`, `uncompressed`, `exclude`. They are loaded on first use, and torch with them: programs
that the start-up hook looks at must not pay for either.
"""

from typing import Any

__all__ = ["Compression", "compression", "exclude", "uncompressed"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from kompakt_runtime import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
