"""Annotations as a container reads them in its environment (downward API)."""

import re
from typing import Any, Final

from kompakt_core.errors import InvalidInput

_FIELD: Final = re.compile(r"metadata\.annotations\['([^']{1,317})'\]")


def encode(annotation: str) -> dict[str, Any]:
    """The source of a variable: {"fieldRef": ...}. It is read when the container starts, after the planner wrote it."""
    return {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}


def decode(source: object) -> str:
    """The annotation that a variable's source names.

    Raises:
        InvalidInput: it names none.
    """
    field = source.get("fieldRef") if isinstance(source, dict) else None
    path = field.get("fieldPath") if isinstance(field, dict) else None
    found = _FIELD.fullmatch(path) if isinstance(path, str) else None
    if found is None:
        right = "right would be e.g. metadata.annotations['kompakt.dev/rank']"
        raise InvalidInput(f"valueFrom.fieldRef.fieldPath: {repr(path)[:80]} names no annotation; {right}")
    return found[1]
