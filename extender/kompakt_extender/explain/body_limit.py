"""A bound on request bodies, kept while they arrive."""

from typing import Final

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY: Final = 256 << 10  # bytes; a pod's manifest has 10 to 20 KB


class BodyLimit:
    """ASGI middleware: a larger body is answered 413 and not read to its end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MAX_BODY:  # raised where the route reads its body, so FastAPI words it as it does all others
                raise HTTPException(413, f"the body is larger than {MAX_BODY >> 10} KiB", {"Connection": "close"})
            return message

        await self._app(scope, bounded, send)
