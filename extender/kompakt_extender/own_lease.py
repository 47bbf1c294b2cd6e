"""The scheduler's Lease, held by this process itself where pods get their GPUs by ResourceClaims: no kube-scheduler beside it
would hold it.

Who decides follows that Lease all the same (leader_gate): while a release changes from one way to the other, never both decide.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import msgspec

from kompakt_client.elector import LeaseElector
from kompakt_client.requests import ApiRequest, Object
from kompakt_client.transport import ApiClient
from kompakt_core import contract


class _Leases:
    """What a LeaseElector asks of the API server, from a thread of its own: no renewal waits behind a plan that is written."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")

    async def get(self, path: str) -> Object:
        return await self._send(ApiRequest("GET", path))

    async def create(self, path: str, body: Mapping[str, Any]) -> Object:
        return await self._send(ApiRequest("POST", path, body=body))

    async def update(self, path: str, body: Mapping[str, Any]) -> Object:
        return await self._send(ApiRequest("PUT", path, body=body))

    async def _send(self, request: ApiRequest) -> Object:
        answer = await asyncio.get_running_loop().run_in_executor(self._thread, self._api.send, request)
        return msgspec.json.decode(answer, type=dict[str, Any])


async def hold(api: ApiClient, namespace: str, identity: str) -> None:
    """Take the Lease whenever it is free, and renew it, until cancelled. The holder is named as kube-scheduler names itself:
    `<identity>_<uuid>`.
    """
    elector = LeaseElector(_Leases(api), namespace, contract.SCHEDULER_LEASE, f"{identity}_{uuid4()}")
    try:
        while True:
            await elector.acquired()
            await elector.lost()
    finally:
        await elector.release()
