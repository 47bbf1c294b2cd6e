"""Every call to the API server that decides something passes here: none is sent by a process that may not decide."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from kompakt_client.lease import CONNECT_SECONDS, WRITE_SECONDS
from kompakt_client.requests import JSON, Answer, ApiRequest
from kompakt_client.transport import ApiClient


class NotSent(Exception):
    """The call was not made, because this process may not decide any longer."""


Pause = Callable[[float], Awaitable[None]]  # waits so many seconds


class Sender(Protocol):
    """What planner and binder need of a Writer."""

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str | int] | None = None,
        content_type: str = JSON,
    ) -> Answer:
        """See Writer.send."""
        ...


class Writer:
    """Sends requests from worker threads. `may_write` is asked in the thread, at the last moment."""

    def __init__(self, api: ApiClient, may_write: Callable[[], bool]) -> None:
        self._api = api
        self._may_write = may_write

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str | int] | None = None,
        content_type: str = JSON,
    ) -> Answer:
        """One request.

        Raises:
            NotSent: surely nothing happened.
            TryLater: no answer, or the server's own trouble; a write may have happened.
        """

        request = ApiRequest(
            method, path, query or {}, body, content_type, seconds=WRITE_SECONDS, connect_seconds=CONNECT_SECONDS
        )

        def call() -> Answer:
            if not self._may_write():
                raise NotSent("the scheduler beside this process no longer holds its Lease")
            return self._api.exchange(request)

        return await asyncio.to_thread(call)
