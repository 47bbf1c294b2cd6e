"""The live page's files, which are everybody's, and what they show, which is for those who may be told of nodes."""

from importlib.resources import files
from typing import Any, Final

from fastapi import FastAPI, HTTPException, Request, Response, Security
from fastapi.security import APIKeyHeader

from kompakt_core.contract import TOKEN_HEADER
from kompakt_extender.explain.access import AccessGuard
from kompakt_extender.explain.routes import PREFIX
from kompakt_extender.live.event_stream import EventStream
from kompakt_extender.live.feed import LiveFeed
from kompakt_extender.live.listener import PageListener
from kompakt_extender.live.models import LiveOverview
from kompakt_extender.live.overview import Visible

_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Nothing but our own files, and no script or style in the page itself; `data:` for nothing.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_TOKEN: Final = APIKeyHeader(name=TOKEN_HEADER, auto_error=False)
SECONDS: Final = 10.0


def page_files() -> dict[str, bytes]:
    """The page's files by name."""
    return {one.name: one.read_bytes() for one in files("kompakt_extender.live").joinpath("static").iterdir()}


def add_live_page(app: FastAPI) -> None:
    """Routes /ui/ and /ui/{name}."""
    found = page_files()

    @app.get("/ui", include_in_schema=False)
    async def slash() -> Response:
        return Response(status_code=307, headers={"Location": "ui/"})

    @app.get("/ui/", include_in_schema=False)
    async def page() -> Response:
        return _file(found, "index.html")

    @app.get("/ui/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return _file(found, name)


def _file(found: dict[str, bytes], name: str) -> Response:
    kind = _KINDS.get(name[name.rfind(".") :] if "." in name else "")
    if name not in found or kind is None:
        raise HTTPException(404, f"no file {name[:80]!r}")
    return Response(found[name], media_type=kind, headers=_HEADERS)


def add_live_routes(app: FastAPI, feed: LiveFeed, guard: AccessGuard) -> None:
    """Routes /v1alpha1/overview and /v1alpha1/events."""
    shared: dict[str, Any] = {"tags": ["live"], "dependencies": [Security(_TOKEN)]}

    async def visible(request: Request) -> Visible:
        """Which namespaces whoever asks may be told of; raises AccessRefused where not even of nodes."""
        return await guard.namespaces_of(await guard.to_nodes(request), feed.namespaces())

    @app.get(f"{PREFIX}/overview", response_model=LiveOverview, **shared)
    async def overview(request: Request) -> Response:
        """The whole cluster at this moment: nodes with holders and values, gangs, the counts of an hour."""
        listener = feed.join(await visible(request))
        try:
            event = await listener.next(SECONDS)
        finally:
            feed.leave(listener)
        if event is None:
            status, why = listener.ended or (503, "the cluster could not be read in time; ask again")
            raise HTTPException(status, why)
        return Response(event.partition(b"data: ")[2], media_type="application/json")

    @app.get(f"{PREFIX}/events", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}}, **shared)
    async def events(request: Request) -> Response:
        """Server-sent events: `all` first, as `overview` answers it, then `change` with what is new, and `end` with why it ends.

        A stream ends within 35 seconds of its token's end or the loss of the right; whoever may still see the cluster asks anew.
        """
        listener: PageListener = feed.join(await visible(request))
        return EventStream(listener, lambda: visible(request), feed.leave)
