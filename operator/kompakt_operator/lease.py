"""Who is the active operator: a Lease, renewed by its holder. The decisions are pure; `Elector` does the talking.

The times and the rule against clock skew are those of client-go's leader election: a Lease counts as expired when its
record has not changed for its duration on the *observer's* clock; written times are for people.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, Final

from kompakt_client.errors import ApiError, Conflict, NotFound
from kompakt_core import contract
from kompakt_core.contract import timestamps
from kompakt_operator.api import OperatorApi

DURATION: Final = 15.0  # seconds a Lease holds without being renewed
DEADLINE: Final = 10.0  # the holder gives up when it could not renew for so long
RETRY: Final = 2.0
RELEASE: Final = 3.0  # how long giving it up may take: the pod is killed half a minute after it was asked to end
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Observation:
    """The Lease's record as last seen to change, and when that was on our own clock."""

    record: tuple[str, str] = ("", "")
    at: float = 0.0

    def seen(self, lease: dict[str, Any], now: float) -> "Observation":
        """The observation after reading the Lease once more."""
        spec = lease.get("spec") or {}
        record = (str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or ""))
        return self if record == self.record else Observation(record, now)

    def free_for(self, identity: str, now: float) -> bool:
        """Whether this process may take or keep the Lease."""
        holder = self.record[0]
        return holder in ("", identity) or now >= self.at + DURATION


class Elector:
    """Holds the Lease `kompakt-operator`."""

    def __init__(self, api: OperatorApi, namespace: str, identity: str) -> None:
        self._api, self._identity = api, identity
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._folder}/{contract.OPERATOR_LEASE}"
        self._observed = Observation()
        self.active = False

    async def acquired(self) -> None:
        """Returns when this process holds the Lease."""
        while not await self._try_once():
            await asyncio.sleep(RETRY)
        self.active = True
        log.info("active: holding Lease %s as %s", contract.OPERATOR_LEASE, self._identity)

    async def lost(self) -> None:
        """Renews; returns when the Lease could not be renewed in time or somebody else has it."""
        renewed = time.monotonic()
        while time.monotonic() < renewed + DEADLINE:
            await asyncio.sleep(RETRY)
            if await self._try_once():
                renewed = time.monotonic()
            elif self._observed.record[0] not in ("", self._identity):
                break
        self.active = False
        log.error("lost Lease %s to %s", contract.OPERATOR_LEASE, self._observed.record[0] or "nobody in time")

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
        log.info("released Lease %s", contract.OPERATOR_LEASE)
        return True

    async def _try_once(self) -> bool:
        try:
            async with asyncio.timeout(RETRY * 2):
                return await self._take_or_renew()
        except (ApiError, TimeoutError) as problem:
            log.warning("Lease %s: %s", contract.OPERATOR_LEASE, str(problem) or "no answer in time")
            return False

    async def _take_or_renew(self) -> bool:
        try:
            lease = await self._api.get(self._path)
        except NotFound:
            created = await self._api.create(self._folder, self._record({"metadata": {"name": contract.OPERATOR_LEASE}}))
            self._observed = self._observed.seen(created, time.monotonic())
            return True
        now = time.monotonic()
        self._observed = self._observed.seen(lease, now)
        if not self._observed.free_for(self._identity, now):
            return False
        written = await self._api.update(self._path, self._record(lease))  # carries resourceVersion: one of two wins
        self._observed = self._observed.seen(written, time.monotonic())
        return True

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
