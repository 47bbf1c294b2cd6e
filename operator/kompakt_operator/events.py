"""Few Events of our own: one for each turn of a job that its owner wants to read in `kubectl describe`."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from time import time
from typing import Any, Final

from kompakt_client.errors import ApiError
from kompakt_client.events import WRITE_SECONDS, EventCorrelator, EventOutcome, EventWrite, Occurrence, Regarding
from kompakt_core import contract
from kompakt_core.contract.conditions import Type
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.job.pods import Cause
from kompakt_core.job.status import JobStatus, read_status
from kompakt_operator.api import OperatorApi

Object = dict[str, Any]
WARNINGS: Final = frozenset({Type.FAILED, Type.STALLED})
TOLD: Final = (Type.COMPLETE, Type.FAILED, Type.STALLED, Type.SUSPENDED)
log = logging.getLogger(__name__)


def transitions(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    """Type, reason and message of what happened between two states of a job object."""
    old, new = read_status(before), read_status(after)
    if new.attempt > old.attempt:
        running = new.conditions.get(Type.RUNNING)
        why = running.message if running is not None and new.attempt > 1 else ""
        yield ("Warning" if why else "Normal"), "AttemptStarted", f"attempt {new.attempt}{': ' + why if why else ''}"
        if (whom := _preempted(old, new)) is not None:
            yield "Warning", "Preempted", f"attempt {old.attempt} ends {whom.message}"
    for type_ in TOLD:
        condition = new.conditions.get(type_)
        if condition is not None and condition.true and not old.holds(type_):
            yield ("Warning" if type_ in WARNINGS else "Normal"), condition.reason, condition.message or str(type_)


def _preempted(old: JobStatus, new: JobStatus) -> PreemptRequest | None:
    """For whom the attempt ended, if it ended for another job."""
    last = new.last_restart
    return old.preempt if new.attempt > old.attempt and last is not None and last.reason == Cause.PREEMPTED else None


def turns_of_others(before: Object, after: Object) -> Iterator[tuple[Object, str, str]]:
    """What between two states of a job object happened for another job: that one's metadata, reason and message. Nothing where
    that one is of another namespace: its own status says how many end for it.
    """
    whom = _preempted(read_status(before), read_status(after))
    if whom is not None and whom.name:
        meta = after["metadata"]
        other = {"namespace": whom.namespace, "name": whom.name, "uid": whom.uid}
        yield other, "PreemptedOther", f"{meta['namespace']}/{meta['name']} of priority {whom.own_priority} ends for this job"


class EventAnnouncer:
    """Posts them; the same again is counted at the Event that stands there. What cannot be posted is no reason to stop."""

    def __init__(self, api: OperatorApi, instance: str, clock: Callable[[], float] = time) -> None:
        """`instance`: which of several operators this is."""
        self._api, self._clock = api, clock
        self._correlator = EventCorrelator(contract.OPERATOR_MANAGER, instance)

    async def announce(self, before: Object, after: Object) -> None:
        """What happened between two states of a job object."""
        own = [(after["metadata"], kind, reason, message) for kind, reason, message in transitions(before, after)]
        others = [(meta, "Normal", reason, message) for meta, reason, message in turns_of_others(before, after)]
        for meta, kind, reason, message in own + others:
            about = Regarding(contract.API_VERSION, contract.JOB_KIND, meta["name"], meta["uid"], meta["namespace"])
            self._correlator.tell(Occurrence(about, kind, reason, "Reconciling", message), self._clock())
        if own or others:
            await self.flush()

    async def run(self) -> None:
        """Forever: what the API server did not take, and counts that had to wait."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write all that is due."""
        while (write := self._correlator.take(self._clock())) is not None:
            error = await self._failure(write)
            outcome = self._correlator.answered(write, error, self._clock())
            if outcome is not EventOutcome.SETTLED:
                said, about = write.said, write.said.regarding
                log.warning("Event %s for %s/%s is %s: %s", said.reason, about.namespace, about.name, outcome.value, error)
            if outcome is EventOutcome.LATER:
                return

    async def _failure(self, write: EventWrite) -> ApiError | None:
        try:
            await (self._api.create if write.creates else self._api.merge)(write.path, write.body)
        except ApiError as problem:
            return problem
        return None
