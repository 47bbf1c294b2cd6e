"""Events for people: each is tried until the API server has taken it, or refuses it for good."""

import logging
from collections import deque
from typing import Final

from kompakt_client.errors import ApiError, Conflict, explained
from kompakt_client.requests import Object
from kompakt_core.errors import TryLater
from kompakt_device_plugin.api import PluginApi
from kompakt_device_plugin.deadline_executor import DeadlineExecutor, DeadlineTask

log = logging.getLogger(__name__)
MAX_OWED: Final = 256  # the oldest go first, should the API server be away for that long
SECONDS: Final = 1.0  # a round of the agent waits no longer for Events: nothing rests on them


class EventRecorder:
    """Events that are still to be made. Safe to use from several threads."""

    def __init__(self, api: PluginApi, seconds: float = SECONDS) -> None:
        self._api, self._seconds = api, seconds
        self._owed: deque[Object] = deque(maxlen=MAX_OWED)
        self._complaint = ""
        self._executor = DeadlineExecutor("events", threads=1)
        self._sending: DeadlineTask[None] | None = None

    def owe(self, event: Object) -> None:
        """This is to be made; never waits."""
        self._owed.append(event)

    def send(self) -> None:
        """Makes what is owed, in order; waits for at most so many `seconds`, and not at all for a call that hangs since before.

        Never raises: what the API server does not take now is tried at the next call.
        """
        if self._sending and not self._sending.done():
            return
        if self._owed:
            self._sending = self._executor.begin(self._make_all)
            self._sending.ended(self._seconds)

    def _make_all(self) -> None:
        while self._owed:
            try:
                event = self._owed.popleft()
            except IndexError:  # it fell out meanwhile, with many newer ones
                return
            if not self._made(event):
                self._owed.appendleft(event)
                return

    def _made(self, event: Object) -> bool:
        """Whether nothing is left to do for it."""
        try:
            self._api.create(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)
        except ApiError as error:
            later = isinstance(error, TryLater | Conflict)
            about, what = event["involvedObject"]["name"], "made later" if later else "not made"
            self._complain(f"the Event {event['reason']} about {about} is {what}: {explained(error)}")
            return not later
        self._complaint = ""
        return True

    def _complain(self, said: str) -> None:
        """Once, not at every try."""
        if said != self._complaint:
            log.warning("%s", said)
        self._complaint = said
