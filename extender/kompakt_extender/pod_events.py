"""An Event on each plain pod that is evicted for a gang, so that its owner sees why it went."""

import logging
import socket

from kompakt_client.errors import ApiError, Unreachable
from kompakt_client.events import EventCorrelator, EventOutcome, EventWrite, Occurrence, Regarding
from kompakt_client.requests import JSON, MERGE_PATCH
from kompakt_core import contract
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.errors import TryLater
from kompakt_extender.views import PodView
from kompakt_extender.writer import NotSent, Sender

_LOG = logging.getLogger(__name__)


class PodEvents:
    """Posts them in the scheduler's name. What the API server does not take goes with the next one: nothing rests on Events."""

    def __init__(self, writer: Sender, instance: str = "") -> None:
        """`instance`: which of several replicas this is; by default the hostname."""
        self._writer = writer
        self._correlator = EventCorrelator(contract.SCHEDULER_NAME, instance or socket.gethostname())

    async def tell(self, pod: PodView, request: PreemptRequest, now: float) -> None:
        """The reason is the one that kube-scheduler gives to pods that it preempts. `now`: seconds since the epoch."""
        about = Regarding("v1", "Pod", pod.name, pod.uid, pod.namespace)
        note = f"evicted {request.message_of('pod')}"
        self._correlator.tell(Occurrence(about, "Warning", "Preempted", "Preempting", note), now)
        while (write := self._correlator.take(now)) is not None:
            error = await self._failure(write)
            outcome = self._correlator.answered(write, error, now)
            if outcome is not EventOutcome.SETTLED:
                where = write.said.regarding
                _LOG.warning("Event about the eviction of %s/%s is %s: %s", where.namespace, where.name, outcome.value, error)
            if outcome is EventOutcome.LATER:
                return

    async def _failure(self, write: EventWrite) -> ApiError | None:
        method, content_type = ("POST", JSON) if write.creates else ("PATCH", MERGE_PATCH)
        try:
            answer = await self._writer.send(method, write.path, body=write.body, content_type=content_type)
        except (TryLater, NotSent) as error:
            return error if isinstance(error, ApiError) else Unreachable(str(error))
        return answer.error
