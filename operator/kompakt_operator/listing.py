"""Whole lists, page by page."""

from collections.abc import AsyncIterator
from typing import Any, Final

from kompakt_core.job.pods import version_of
from kompakt_operator.api import Api
from kompakt_operator.cache import Listed

PAGE: Final = 100  # objects


async def pages(api: Api, path: str, **query: str) -> AsyncIterator[Listed]:
    """All objects as of one moment: later pages are served as of the first one's version. Raises as `Api.get` does."""
    token, version = "", 0
    while True:
        page = await api.get(path, limit=str(PAGE), **query, **({"continue": token} if token else {}))
        meta = page.get("metadata") or {}
        token, version = meta.get("continue", ""), version or version_of(meta)
        yield Listed(list(page.get("items", ())), version)
        if not token:
            return


async def list_all(api: Api, path: str, **query: str) -> Listed:
    """The same in one."""
    found: list[dict[str, Any]] = []
    version = 0
    async for page in pages(api, path, **query):
        found += page.objects
        version = page.version
    return Listed(found, version)
