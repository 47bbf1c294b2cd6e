"""ResourceClaims of workers at the API server: one is written before its pod's gate is removed, and deleted when the plan is
taken back before a scheduler has used it.

A claim carries the name of its pod, and its pod is its controller, so that it goes with the pod. kube-scheduler does not try a
pod whose claim is missing.

Where kube-scheduler has just allocated a claim that is gone by then, it looks again, and writes the allocation to whatever claim
has that name now (bindClaim of its plugin DynamicResources, Kubernetes 1.37). So a name is not used again before kube-scheduler
had time to see that the claim is gone.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kompakt_core.contract import gpu_claim
from kompakt_core.contract.gpu_claim import ClaimedDevices, ClaimOwner
from kompakt_core.errors import TryLater
from kompakt_core.ids import GpuUuid
from kompakt_extender.views import PodView
from kompakt_extender.writer import NotSent, Pause, Sender

_LOG = logging.getLogger(__name__)
# Between the deletion of a claim and the next one of its name; kube-scheduler's watch shows a deletion within milliseconds, and
# under load within a second or so.
SETTLE_SECONDS = 2.0


class ResourceClaims:
    """Writes and deletes them, for the devices of one driver."""

    def __init__(
        self,
        writer: Sender,
        devices: ClaimedDevices,
        *,
        pause: Pause = asyncio.sleep,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`steady` counts seconds by a clock that nobody sets."""
        self._writer = writer
        self._devices = devices
        self._pause = pause
        self._steady = steady
        self._deleted: dict[tuple[str, str], float] = {}  # when, in order

    async def write(self, places: Sequence[tuple[PodView, tuple[GpuUuid, ...]]]) -> str:
        """Claims of these pods, each for these GPUs. Why one of them does not stand, in the API server's words; empty: all do."""
        words = await asyncio.gather(*(self._write(pod, gpus) for pod, gpus in places))
        return next(filter(None, words), "")

    async def _write(self, pod: PodView, gpus: tuple[GpuUuid, ...]) -> str:
        wanted = gpu_claim.encode(ClaimOwner(pod.namespace, pod.name, pod.uid), gpus, self._devices)
        await self._let_settle(pod)
        try:
            answer = await self._writer.send("POST", _folder(pod), body=wanted)
            if answer.status == 409:
                return await self._make_room(pod, wanted)
        except TryLater as error:
            return str(error)
        return "" if answer.ok else answer.message

    async def _let_settle(self, pod: PodView) -> None:
        now = self._steady()
        while self._deleted and next(iter(self._deleted.values())) + SETTLE_SECONDS <= now:
            del self._deleted[next(iter(self._deleted))]
        deleted = self._deleted.get((pod.namespace, pod.name))
        if deleted is not None:
            await self._pause(deleted + SETTLE_SECONDS - now)

    async def _make_room(self, pod: PodView, wanted: Mapping[str, Any]) -> str:
        """The name is taken: by this very claim, by one of an earlier plan, which goes, or by somebody else's."""
        found = await self._read(pod)
        if found is None:
            return f"ResourceClaim {pod.name} was there a moment ago"
        if gpu_claim.is_for(found, wanted):
            return ""
        if not gpu_claim.belongs_to(found, pod.uid):
            return f"ResourceClaim {pod.name} exists and does not belong to pod {pod.name}: delete it, or rename the job"
        await self._delete(pod, found)
        return f"ResourceClaim {pod.name} is still for the GPUs of an earlier plan"

    async def take_back(self, pods: Sequence[PodView]) -> None:
        """Delete the claims of these pods, but those with which one is being bound."""
        await asyncio.gather(*(self._take_back(pod) for pod in pods if pod.by_claim))

    async def _take_back(self, pod: PodView) -> None:
        try:
            found = await self._read(pod)
            if found is not None and gpu_claim.belongs_to(found, pod.uid):
                await self._delete(pod, found)
        except (TryLater, NotSent) as error:  # it then is in the way of the next plan, which deletes it
            _LOG.warning("ResourceClaim %s/%s stays: %s", pod.namespace, pod.name, error)

    async def _read(self, pod: PodView) -> dict[str, Any] | None:
        answer = await self._writer.send("GET", f"{_folder(pod)}/{pod.name}")
        return msgspec.json.decode(answer.body, type=dict[str, Any]) if answer.ok else None

    async def _delete(self, pod: PodView, found: Mapping[str, Any]) -> None:
        """As it was read: a scheduler that takes it meanwhile was first."""
        if gpu_claim.in_use(found):
            return
        seen = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": seen}
        answer = await self._writer.send("DELETE", f"{_folder(pod)}/{pod.name}", body=body)
        self._deleted.pop((pod.namespace, pod.name), None)  # to its end
        self._deleted[pod.namespace, pod.name] = self._steady()
        if not answer.ok and answer.status not in (404, 409):
            _LOG.error("ResourceClaim %s/%s is not deleted: %s", pod.namespace, pod.name, answer.message)


def _folder(pod: PodView) -> str:
    return f"/apis/{gpu_claim.API_VERSION}/namespaces/{pod.namespace}/{gpu_claim.PLURAL}"
