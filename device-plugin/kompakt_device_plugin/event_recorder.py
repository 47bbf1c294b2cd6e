"""Events for people: each is tried until the API server has taken it, or refuses it for good; the same again is counted."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from kompakt_client.errors import ApiError, explained
from kompakt_client.events import EventCorrelator, EventOutcome, EventWrite, Occurrence
from kompakt_core import contract
from kompakt_device_plugin.api import PluginApi
from kompakt_device_plugin.clock import now_seconds
from kompakt_device_plugin.deadline_executor import DeadlineExecutor, DeadlineTask

log = logging.getLogger(__name__)
MAX_OWED: Final = 256  # the oldest go first, should the API server be away for that long
SECONDS: Final = 1.0  # a round of the agent waits no longer for Events: nothing rests on them


class EventRecorder:
    """Events that are still to be made. Safe to use from several threads."""

    def __init__(
        self,
        api: PluginApi,
        node: str = contract.PLUGIN_MANAGER,
        seconds: float = SECONDS,
        clock: Callable[[], float] = now_seconds,
    ) -> None:
        """`node`: on which this runs, as the Events name it."""
        self._api, self._seconds, self._clock = api, seconds, clock
        self._owed, self._lock = EventCorrelator(contract.PLUGIN_MANAGER, node, MAX_OWED), threading.Lock()
        self._complaint = ""
        self._executor = DeadlineExecutor("events", threads=1)
        self._sending: DeadlineTask[None] | None = None

    def owe(self, event: Occurrence) -> None:
        """This is to be made, or counted; waits for no request."""
        with self._lock:
            self._owed.tell(event, self._clock())

    def send(self) -> None:
        """Makes what is owed, in order; waits for at most so many `seconds`, and not at all for a call that hangs since before.

        Never raises: what the API server does not take now is tried at the next call.
        """
        if self._sending and not self._sending.done():
            return
        if write := self._next():
            self._sending = self._executor.begin(self._make_all, write)
            self._sending.ended(self._seconds)

    def _next(self) -> EventWrite | None:
        with self._lock:
            return self._owed.take(self._clock())

    def _make_all(self, first: EventWrite) -> None:
        write: EventWrite | None = first
        while write is not None and self._made(write):
            write = self._next()

    def _made(self, write: EventWrite) -> bool:
        """Whether the next one may follow."""
        error = self._failure(write)
        with self._lock:
            outcome = self._owed.answered(write, error, self._clock())
        if error is None:
            self._complaint = ""
        elif outcome is not EventOutcome.SETTLED:
            what, about = write.said.reason, write.said.regarding.name
            self._complain(f"the Event {what} about {about} is {outcome.value}: {explained(error)}")
        return outcome is not EventOutcome.LATER

    def _failure(self, write: EventWrite) -> ApiError | None:
        try:
            (self._api.create if write.creates else self._api.merge)(write.path, write.body)
        except ApiError as error:
            return error
        return None

    def _complain(self, said: str) -> None:
        """Once, not at every try."""
        if said != self._complaint:
            log.warning("%s", said)
        self._complaint = said
