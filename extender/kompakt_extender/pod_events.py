"""Events on plain pods, for their owners: why one was evicted, and why one was placed otherwise than it asked for."""

import logging
import socket

from kompakt_client.errors import ApiError, Unreachable
from kompakt_client.events import EventCorrelator, EventOutcome, EventWrite, Occurrence, Regarding
from kompakt_client.requests import JSON, MERGE_PATCH
from kompakt_core import contract
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.errors import TryLater
from kompakt_extender.custom_patterns import NOT_IN_TIME
from kompakt_extender.views import PodView
from kompakt_extender.writer import NotSent, Sender

_LOG = logging.getLogger(__name__)


class PodEvents:
    """Posts them in the scheduler's name. What the API server does not take goes with the next one: nothing rests on Events."""

    def __init__(self, writer: Sender, instance: str = "") -> None:
        """`instance`: which of several replicas this is; by default the hostname."""
        self._writer = writer
        self._correlator = EventCorrelator(contract.SCHEDULER_NAME, instance or socket.gethostname())

    async def evicted(self, pod: PodView, request: PreemptRequest, now: float) -> None:
        """The reason is the one that kube-scheduler gives to pods that it preempts. `now`: seconds since the epoch."""
        await self._tell(pod, "Preempted", "Preempting", f"evicted {request.message_of('pod')}", now)

    async def placed_without_pattern(self, pod: PodView, now: float) -> None:
        """The pod was bound, and its custom edges had no part in it."""
        await self._tell(pod, "PlacedWithoutPattern", "Binding", NOT_IN_TIME, now)

    async def _tell(self, pod: PodView, reason: str, action: str, note: str, now: float) -> None:
        about = Regarding("v1", "Pod", pod.name, pod.uid, pod.namespace)
        self._correlator.tell(Occurrence(about, "Warning", reason, action, note), now)
        while (write := self._correlator.take(now)) is not None:
            error = await self._failure(write)
            outcome = self._correlator.answered(write, error, now)
            if outcome is not EventOutcome.SETTLED:
                where = write.said.regarding
                _LOG.warning(
                    "Event %s about %s/%s is %s: %s", write.said.reason, where.namespace, where.name, outcome.value, error
                )
            if outcome is EventOutcome.LATER:
                return

    async def _failure(self, write: EventWrite) -> ApiError | None:
        method, content_type = ("POST", JSON) if write.creates else ("PATCH", MERGE_PATCH)
        try:
            answer = await self._writer.send(method, write.path, body=write.body, content_type=content_type)
        except (TryLater, NotSent) as error:
            return error if isinstance(error, ApiError) else Unreachable(str(error))
        return answer.error
