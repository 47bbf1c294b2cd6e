"""Who is the active one of several processes: the holder of a Lease, who renews it. What is seen of it is judged in lease.py.

The times are those of client-go's leader election.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from kompakt_client.errors import ApiError, Conflict, NotFound
from kompakt_client.lease import LeaseObserver, LeaseSpec
from kompakt_client.requests import Object
from kompakt_core.contract import timestamps

DURATION: Final = 15.0  # seconds a Lease holds without being renewed
DEADLINE: Final = 10.0  # the holder gives up when it could not renew for so long
RETRY: Final = 2.0
RELEASE: Final = 3.0  # how long giving it up may take: the pod is killed half a minute after it was asked to end
log = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """What is asked of the API server. Every method raises an ApiError."""

    async def get(self, path: str) -> Object: ...
    async def create(self, path: str, body: Mapping[str, Any]) -> Object: ...
    async def update(self, path: str, body: Mapping[str, Any]) -> Object: ...


class LeaseElector:
    """Holds a Lease by renewing it; the next one may take it over when it does not."""

    def __init__(self, api: LeaseApi, namespace: str, name: str, identity: str) -> None:
        self._api, self._name, self._identity = api, name, identity
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._folder}/{self._name}"
        self._observed = LeaseObserver()
        self.active = False
        self.heard = False  # whether the API server answered when it was last asked

    async def acquired(self) -> None:
        """Returns when this process holds the Lease."""
        while not await self._try_once():
            await asyncio.sleep(RETRY)
        self.active = True
        log.info("active: holding Lease %s as %s", self._name, self._identity)

    async def lost(self) -> None:
        """Renews; returns when the Lease could not be renewed in time or somebody else has it."""
        renewed = time.monotonic()
        while time.monotonic() < renewed + DEADLINE:
            await asyncio.sleep(RETRY)
            if await self._try_once(min(RETRY * 2, renewed + DEADLINE - time.monotonic())):
                renewed = time.monotonic()
            elif self._observed.holder not in ("", self._identity):
                break
        self.active = False
        log.error("lost Lease %s to %s", self._name, self._observed.holder or "nobody in time")

    async def release(self) -> None:
        """Let a standby take over at once, should this process hold the Lease; it may even without knowing so."""
        self.active = False
        try:
            async with asyncio.timeout(RELEASE):
                while not await self._given_up():
                    pass
        except (ApiError, TimeoutError) as problem:
            log.warning("could not release the Lease: %s", str(problem) or "no answer in time")

    async def _given_up(self) -> bool:
        """False where a renewal of our own, cancelled when it was under way, came in between."""
        lease = await self._api.get(self._path)
        if (lease.get("spec") or {}).get("holderIdentity") != self._identity:
            return True
        lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._api.update(self._path, lease)
        except Conflict:
            return False
        log.info("released Lease %s", self._name)
        return True

    async def _try_once(self, seconds: float = RETRY * 2) -> bool:
        try:
            async with asyncio.timeout(seconds):
                held = await self._take_or_renew()
            self.heard = True
            return held
        except (ApiError, TimeoutError) as problem:
            # Who comes a moment too late for the Lease was answered all the same.
            self.heard = isinstance(problem, Conflict)
            log.warning("Lease %s: %s", self._name, str(problem) or "no answer in time")
            return False

    async def _take_or_renew(self) -> bool:
        try:
            lease = await self._api.get(self._path)
        except NotFound:
            created = await self._api.create(self._folder, self._record({"metadata": {"name": self._name}}))
            self._observed = self._seen(created)
            return True
        now = time.monotonic()
        self._observed = self._seen(lease)
        if not self._observed.free_for(self._identity, now, DURATION):
            return False
        written = await self._api.update(self._path, self._record(lease))  # carries resourceVersion: one of two wins
        self._observed = self._seen(written)
        return True

    def _seen(self, lease: Object) -> LeaseObserver:
        return self._observed.observe(msgspec.convert(lease.get("spec") or {}, LeaseSpec), time.monotonic())

    def _record(self, lease: dict[str, Any]) -> dict[str, Any]:
        before = lease.get("spec") or {}
        now = timestamps.encode_micro(time.time())
        mine = before.get("holderIdentity") == self._identity
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if mine else now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (not mine),
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease["metadata"], "spec": spec}
