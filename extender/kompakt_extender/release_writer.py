"""The planner's writes: status.scheduling first, then the pods."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from kompakt_client.lease import WRITE_SECONDS
from kompakt_client.requests import APPLY, JSON_PATCH, Answer
from kompakt_core import contract
from kompakt_core.contract import bound_gpus, scheduling_record
from kompakt_core.contract.bound_gpus import BoundGpus
from kompakt_core.contract.plan_record import SeatRecord
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.contract.scheduling_record import Record
from kompakt_core.errors import InvalidInput, TryLater
from kompakt_extender import record as records
from kompakt_extender.gangs import annotation_patch, annotations_of, release_patch
from kompakt_extender.objects import JobObject, Pod
from kompakt_extender.pod_events import PodEvents
from kompakt_extender.project import pod_view
from kompakt_extender.resource_claims import ResourceClaims
from kompakt_extender.views import JobView, PodView
from kompakt_extender.writer import NotSent, Pause, Sender

_LOG = logging.getLogger(__name__)
LONGEST_PAUSE = 5.0  # seconds
CLAIM_PAUSE = 1.0  # seconds until ResourceClaims that could not be written are tried again
TRIED_SECONDS = 60.0  # a write that has no good answer for so long is not sent again
# An API server ends a request after a minute (--request-timeout of kube-apiserver): a write sent before that arrives no more.
LATE_SECONDS = 60.0 + WRITE_SECONDS
_NAMESPACES = f"/apis/{contract.API_VERSION}/namespaces"


class WriteOutcome(StrEnum):
    """What became of a write."""

    DONE = "done"
    CONFLICT = "conflict"  # surely not done: somebody changed the job first, or it is gone
    REFUSED = "refused"  # the API server will not have it
    GIVEN_UP = "given up"  # surely not done, after many tries


class Eviction(StrEnum):
    """What became of one."""

    DONE = "it ends"
    GONE = "it is gone already"
    REFUSED = "a PodDisruptionBudget does not let it"
    UNKNOWN = "no answer that says so"


class ReleaseWriter:
    """Writes plans."""

    def __init__(
        self,
        writer: Sender,
        seen: Callable[[PodView], None],
        *,
        pause: Pause = asyncio.sleep,
        steady: Callable[[], float] = time.monotonic,
        resource: str = contract.RESOURCE,
        resource_claims: ResourceClaims | None = None,
    ) -> None:
        """`steady` counts seconds by a clock that nobody sets. `resource`: by which name pods ask for GPUs. `resource_claims`:
        where pods get their GPUs by these.
        """
        self._resource = resource
        self._resource_claims = resource_claims
        self._writer = writer
        self._steady = steady
        self._events = PodEvents(writer)
        self._seen = seen  # a patched pod, before the watch shows it
        self._pause = pause

    async def write(self, job: JobView, record: Record, now: datetime) -> WriteOutcome:
        """Apply status.scheduling and Placed. An unknown outcome is resolved by reading the job.

        Where the job stands there unchanged the same write is sent again: it carries the job's version, so that of the two
        at most one succeeds. Not for ever: a webhook that always fails must not hold the GPUs of a plan.
        """
        path = f"{_NAMESPACES}/{job.namespace}/{job.kind.plural}/{job.name}"
        query = {"fieldManager": contract.PLANNER_MANAGER, "force": "true"}
        body = records.status_apply(job, record, now)
        pause, unheard, last_begins = 0.2, False, self._steady() + TRIED_SECONDS
        while True:
            last = self._steady() >= last_begins
            try:
                answer = await self._writer.send("PATCH", f"{path}/status", body=body, query=query, content_type=APPLY)
            except TryLater as error:
                _LOG.warning("%s/%s: status write of unknown outcome: %s", job.namespace, job.name, error)
            else:
                if answer.ok:
                    return WriteOutcome.DONE
                if not (unheard and answer.status == 409):  # else the one that nobody heard of may have been first
                    return self._refused(job, answer)
            unheard = True
            known = await self._find_out(path, job, record, pause, self._steady() + LATE_SECONDS if last else 0.0)
            if known is not None or last:
                return known or WriteOutcome.GIVEN_UP
            pause = min(pause * 2, LONGEST_PAUSE)

    @staticmethod
    def _refused(job: JobView, answer: Answer) -> WriteOutcome:
        if answer.status in (404, 409):
            return WriteOutcome.CONFLICT
        _LOG.error("%s/%s: status refused: %s", job.namespace, job.name, answer.message)
        return WriteOutcome.REFUSED

    async def _find_out(self, path: str, job: JobView, record: Record, pause: float, until: float) -> WriteOutcome | None:
        """What became of the write; None where the job stands there as before it, then at least."""
        while True:
            await self._pause(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            try:
                answer = await self._writer.send("GET", path)
            except (TryLater, NotSent):  # not known either while the Lease is nobody's
                continue
            if answer.status == 404:
                return WriteOutcome.CONFLICT
            if not answer.ok:
                continue
            found = msgspec.json.decode(answer.body, type=JobObject)
            if found.metadata.uid != job.written_uid:
                return WriteOutcome.CONFLICT
            try:
                same = _same(scheduling_record.decode(found.status.scheduling or {}), record)
            except InvalidInput:
                same = False
            if same:
                return WriteOutcome.DONE
            # Our write carried the old version: where that has passed, it can no longer succeed.
            if found.metadata.resource_version != job.resource_version:
                return WriteOutcome.CONFLICT
            if self._steady() >= until:
                return None

    async def release(self, record: Record, pods: Sequence[PodView]) -> str:
        """Remove gates and write the plan on these pods; whatever fails is seen in the next round.

        Where they get their GPUs by ResourceClaims these are written first, those of all pods before any gate goes. Why one could
        not be; empty where nothing was in the way.
        """
        if record.plan is None:
            return ""
        plan = record.plan
        seats = {seat.uid: seat for seat in plan.pods}
        places = [(pod, seats[pod.uid]) for pod in pods if pod.uid in seats]
        if words := await self._claim(places):
            return words
        found = ((pod, release_patch(pod, annotations_of(seat, plan, pod))) for pod, seat in places)
        await asyncio.gather(*(self._patch(pod, patch, "release") for pod, patch in found))
        return ""

    async def _claim(self, places: Sequence[tuple[PodView, SeatRecord]]) -> str:
        if self._resource_claims is None:
            return ""
        words = await self._resource_claims.write([(pod, seat.gpus) for pod, seat in places if pod.by_claim])
        if words:
            _LOG.warning("%s/%s and its gang: %s", places[0][0].namespace, places[0][0].name, words)
            await self._pause(CLAIM_PAUSE)
        return words

    async def take_back(self, pods: Sequence[PodView]) -> None:
        """What was written for these pods beside the plan, which is withdrawn."""
        if self._resource_claims is not None:
            await self._resource_claims.take_back(pods)

    async def note(self, given: Sequence[tuple[PodView, BoundGpus]]) -> None:
        """Write on pods that another scheduler has bound which GPUs their claims were given."""
        await asyncio.gather(*(self._patch(pod, annotation_patch(pod, bound_gpus.encode(gpus)), "GPUs") for pod, gpus in given))

    async def evict(self, pod: PodView) -> Eviction:
        """Have this very pod end, if its PodDisruptionBudgets let it."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            answer = await self._writer.send("POST", path, body=body)
        except (TryLater, NotSent) as error:
            # Both a budget and an API server that has too much to do answer 429.
            return Eviction.REFUSED if "disruption budget" in str(error) else Eviction.UNKNOWN
        if answer.ok or answer.status in (404, 409):
            return Eviction.DONE if answer.ok else Eviction.GONE
        _LOG.error("eviction of %s/%s: %s", pod.namespace, pod.name, answer.message)
        return Eviction.REFUSED

    async def tell_evicted(self, pod: PodView, request: PreemptRequest, now: datetime) -> None:
        """Its owner, by an Event."""
        await self._events.evicted(pod, request, now.timestamp())

    async def _patch(self, pod: PodView, patch: list[dict[str, Any]], what: str) -> None:
        """`what` is written, for the log."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            answer = await self._writer.send("PATCH", path, body=patch, content_type=JSON_PATCH)
        except TryLater as error:
            _LOG.warning("%s of %s/%s: %s", what, pod.namespace, pod.name, error)
            await self._pause(min(error.seconds, LONGEST_PAUSE))
            return
        if answer.ok:
            self._seen(pod_view(msgspec.json.decode(answer.body, type=Pod), self._resource))
        else:
            _LOG.warning("%s of %s/%s refused: %s", what, pod.namespace, pod.name, answer.message)
            await self._pause(0.2)  # the watch will show why; do not ask again at once


def _same(found: Record | None, record: Record) -> bool:
    """As written: what is read names GPUs by indices alone."""
    return found is not None and scheduling_record.encode(found) == scheduling_record.encode(record)
