"""Whole lists, page by page."""

from typing import Any, Final

from kompakt_core.job.pods import version_of
from kompakt_operator.api import Api
from kompakt_operator.cache import Listed

PAGE: Final = 100  # objects


async def list_all(api: Api, path: str, **query: str) -> Listed:
    """All objects as of one moment: later pages are served as of the first one's version. Raises as `Api.get` does."""
    found: list[dict[str, Any]] = []
    token, version = "", 0
    while True:
        page = await api.get(path, limit=str(PAGE), **query, **({"continue": token} if token else {}))
        meta = page.get("metadata") or {}
        found += page.get("items", ())
        token, version = meta.get("continue", ""), version or version_of(meta)
        if not token:
            return Listed(found, version)
