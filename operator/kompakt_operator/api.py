"""Requests of the operator: each in a thread of the shared client, so that the loop goes on meanwhile."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import msgspec

from kompakt_client.connections import find
from kompakt_client.errors import TooLong, Unreachable
from kompakt_client.objects import decoded
from kompakt_client.pages import PageSize
from kompakt_client.requests import JSON, MERGE_PATCH, ApiRequest, applying, deleting
from kompakt_client.transport import ApiClient
from kompakt_core import contract
from kompakt_operator.turns import Turns

Object = dict[str, Any]
SECONDS: Final = 15.0  # the most that an answer may take
AT_ONCE: Final = 16  # requests in flight
TURN_SECONDS: Final = 5.0  # in line behind those; namespaces take turns
PAGE: Final = 100  # objects of a list that are in memory as they were answered
PAGE_BYTES: Final = 4 << 20  # of them; read into dictionaries they take six times that
_OBJECT: Final = msgspec.json.Decoder(Object)


def jobs_path(namespace: str, name: str = "") -> str:
    """Path of TrainingJobs; namespace "" means all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{contract.API_VERSION}{inside}/{contract.JOB_PLURAL}{'/' if name else ''}{name}"


def core_path(kind: str, namespace: str, name: str = "") -> str:
    """Path of pods, services, events; namespace "" means all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/api/v1{inside}/{kind}{'/' if name else ''}{name}"


def budgets_path(namespace: str, name: str = "") -> str:
    """Path of PodDisruptionBudgets."""
    return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets{'/' if name else ''}{name}"


def _namespace(path: str) -> str:
    """Of a request; "" where it is for no one or for all."""
    _, inside, rest = path.partition("/namespaces/")
    return rest.partition("/")[0] if inside else ""


def _nobody(_: Object, __: bytes) -> None:
    pass


class OperatorApi:
    """The API server, as coroutines. Every method raises an ApiError.

    A request that has been sent cannot be taken back, by a thread or by anybody: once closed, none is sent any more.
    """

    def __init__(self, kubeconfig: str, *, seconds: float = SECONDS, at_once: int = AT_ONCE, turn: float = TURN_SECONDS) -> None:
        """Raises InvalidInput where there is no API server to be asked. `seconds`: the most that an answer may take once it
        is this request's `turn`, for which it waits at most so long."""
        self._closing = threading.Event()
        self._threads, self._turns = (
            ThreadPoolExecutor(at_once, thread_name_prefix="request"),
            Turns(at_once, max(1, at_once // 2)),
        )
        self.client = ApiClient(find(kubeconfig or None), "kompakt-operator", sleep=self._rest)
        self._seconds, self._turn = seconds, turn
        self.answered: Callable[[Object, bytes], None] = _nobody
        """Hears of each object that stands there, as read and as answered."""

    async def close(self) -> None:
        """Returns when nothing is under way any more; what was not sent yet never is."""
        self._closing.set()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def get(self, path: str, accept: str = JSON, **query: str) -> Object:
        return await self._heard(ApiRequest("GET", path, query, accept=accept))

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        query = {"fieldManager": contract.OPERATOR_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        request = ApiRequest("POST", path, query, body)
        return (await self._send(request))[0] if dry_run else await self._heard(request)

    async def update(self, path: str, body: Mapping[str, Any]) -> Object:
        query = {"fieldManager": contract.OPERATOR_MANAGER}
        return await self._heard(ApiRequest("PUT", path, query, body))

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        """Server-side apply, forced: these fields are ours by contract."""
        return await self._heard(applying(path, body, contract.OPERATOR_MANAGER))

    async def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        """JSON merge patch."""
        query = {"fieldManager": contract.OPERATOR_MANAGER}
        return await self._heard(ApiRequest("PATCH", path, query, body, MERGE_PATCH))

    async def delete(self, path: str, uid: str, version: str, *, grace: int | None = None) -> Object:
        """That object in that version, and no other. `grace` in seconds; None: its own. Raises Conflict where it was changed."""
        return (await self._send(deleting(path, uid, version, grace=grace)))[0]

    async def listed(self, path: str, **query: str) -> AsyncIterator[Object]:
        """All objects as of one moment, of which one page is in memory: later ones are served as of the first one's version."""
        token, pages = "", PageSize(PAGE, PAGE_BYTES)
        while True:
            wanted = {"limit": str(pages.objects), **query, **({"continue": token} if token else {})}
            try:
                page, raw = await self._send(ApiRequest("GET", path, wanted, most_bytes=pages.most_bytes))
            except TooLong:
                pages.too_long()
                continue
            pages.came(len(raw))
            for obj in page.get("items") or ():
                yield obj
            token = (page.get("metadata") or {}).get("continue", "")
            if not token:
                return

    async def _heard(self, request: ApiRequest) -> Object:
        found, raw = await self._send(request)
        self.answered(found, raw)
        return found

    async def _send(self, request: ApiRequest) -> tuple[Object, bytes]:
        try:
            async with self._turns.of(_namespace(request.path), self._turn):
                if self._closing.is_set():
                    raise Unreachable("closed before the request was sent")
                raw = await asyncio.get_running_loop().run_in_executor(self._threads, self._exchanged, request)
        except TimeoutError as error:  # what has waited longer is not sent at all, so that the line is soon empty
            words = f"{request.method} {request.path}: not sent, {self._turn:g} s in line behind slower requests"
            raise Unreachable(words) from error
        return decoded(_OBJECT, raw or b"{}"), raw

    # Called in threads

    def _exchanged(self, request: ApiRequest) -> bytes:
        self._rest(0.0)
        return self.client.send(replace(request, seconds=self._seconds))

    def _rest(self, seconds: float) -> None:
        """Before a request is sent, and before it is repeated."""
        if self._closing.wait(seconds):
            raise Unreachable("closed before the request was sent")
