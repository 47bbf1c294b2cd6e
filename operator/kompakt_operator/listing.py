"""Whole lists, page by page, so that of thousands no more than a page is in memory as it was answered."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from kompakt_core.job.pods import version_of
from kompakt_operator.api import OperatorApi
from kompakt_operator.cache import Listed

PAGE: Final = 100  # objects
Found = TypeVar("Found")


async def pages(api: OperatorApi, path: str, **query: str) -> AsyncIterator[Listed[dict[str, Any]]]:
    """All objects as of one moment: later pages are served as of the first one's version. Raises as `OperatorApi.get` does."""
    token, version = "", 0
    while True:
        page = await api.get(path, limit=str(PAGE), **query, **({"continue": token} if token else {}))
        meta = page.get("metadata") or {}
        token, version = meta.get("continue", ""), version or version_of(meta)
        yield Listed(list(page.get("items", ())), version)
        if not token:
            return


async def list_all(api: OperatorApi, path: str, read: Callable[[dict[str, Any]], Found | None], **query: str) -> Listed[Found]:
    """What `read` takes from each object (None: nothing), all in one list."""
    found: list[Found] = []
    version = 0
    async for page in pages(api, path, **query):
        found += [entry for entry in map(read, page.objects) if entry is not None]
        version = page.version
    return Listed(found, version)
