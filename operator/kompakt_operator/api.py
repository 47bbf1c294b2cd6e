"""A thin client of the API server over aiohttp, which kopf carries anyway; a generated client would double the memory."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp
import kopf

from kompakt_client.errors import Throttled, Unreachable
from kompakt_client.requests import MERGE_PATCH, Answer
from kompakt_core import contract
from kompakt_operator.config import ACCOUNT, OperatorConfig

Object = dict[str, Any]
TIMEOUT: Final = aiohttp.ClientTimeout(total=15, connect=5)
TOKEN_SECONDS: Final = 60  # a mounted account token is renewed by the kubelet long before it runs out
AT_ONCE: Final = 16  # requests in flight


def login(config: OperatorConfig) -> kopf.ConnectionInfo:
    """Where the API server is and who we are."""
    settings = kopf.OperatorSettings()
    if config.kubeconfig:
        os.environ["KUBECONFIG"] = config.kubeconfig
        found = kopf.login_with_kubeconfig(settings=settings)
    else:
        found = kopf.login_with_service_account(settings=settings)
    if found is None:
        raise Unreachable(f"no credentials in {config.kubeconfig or ACCOUNT}")
    return found


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


class OperatorApi:
    """A connection pool; `answered` hears of each object that stands there. Every method raises an ApiError."""

    def __init__(self, config: OperatorConfig, answered: Callable[[Object], None] = lambda _: None) -> None:
        self._config, self._answered = config, answered
        self._session: aiohttp.ClientSession | None = None
        self._renew_at = 0.0
        self._headers: dict[str, str] = {}
        self._server = ""

    async def __aenter__(self) -> "OperatorApi":
        info = login(self._config)
        self._server = info.server.rstrip("/")
        connector = aiohttp.TCPConnector(ssl=info.as_ssl_context(), limit=AT_ONCE)
        self._session = aiohttp.ClientSession(connector=connector, timeout=TIMEOUT)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
        return self._heard(await self._send("GET", path, None, query, accept=accept))

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        query = {"fieldManager": contract.OPERATOR_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        made = await self._send("POST", path, body, query)
        return made if dry_run else self._heard(made)

    async def update(self, path: str, body: Mapping[str, Any]) -> Object:
        return await self._send("PUT", path, body, {"fieldManager": contract.OPERATOR_MANAGER})

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        """Server-side apply, forced: these fields are ours by contract."""
        query = {"fieldManager": contract.OPERATOR_MANAGER, "force": "true"}
        return self._heard(await self._send("PATCH", path, body, query, "application/apply-patch+yaml"))

    async def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        """JSON merge patch."""
        return self._heard(await self._send("PATCH", path, body, {"fieldManager": contract.OPERATOR_MANAGER}, MERGE_PATCH))

    async def delete(self, path: str, uid: str = "", propagation: str = "Background", grace: int | None = None) -> Object:
        """With a uid only that very object is deleted, never a successor of the same name. `grace` in seconds; None: its own."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._send("DELETE", path, options, {})

    def _heard(self, found: Object) -> Object:
        self._answered(found)
        return found

    def _authorization(self) -> dict[str, str]:
        now = asyncio.get_running_loop().time()
        if now >= self._renew_at:
            self._headers = login(self._config).as_http_headers()
            self._renew_at = now + TOKEN_SECONDS
        return self._headers

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str],
        kind: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        assert self._session is not None, "use `async with`"
        headers = {**self._authorization(), "Accept": accept, **({"Content-Type": kind} if body is not None else {})}
        data = None if body is None else json.dumps(body)
        try:
            async with self._session.request(method, self._server + path, params=query, data=data, headers=headers) as answer:
                whole, status, said = await answer.read(), answer.status, answer.headers
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        return judged(f"{method} {path}", Answer(status, whole, said))


def judged(what: str, answer: Answer) -> Object:
    """The object in an answer. Raises the ApiError that it stands for."""
    error = answer.error
    if isinstance(error, Throttled | Unreachable):
        raise type(error)(f"{what}: {error.status} {error.message}", error.status, error.reason, error.seconds)
    if error is not None:
        raise error
    try:
        found = json.loads(answer.body) if answer.body else {}
    except ValueError as nonsense:
        raise Unreachable(f"{what}: no JSON in the answer: {nonsense}") from nonsense
    return found if isinstance(found, dict) else {}
