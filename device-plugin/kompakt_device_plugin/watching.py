"""List, then watch, for ever: hands every state of some objects to a callback."""

import logging
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from json import JSONDecodeError
from typing import Final

from urllib3.exceptions import HTTPError

from kompakt_device_plugin.api import NO_QUERY, STREAM_SECONDS, Api, ApiException, Object, Query, explain, status_code
from kompakt_device_plugin.health import Heartbeat

log = logging.getLogger(__name__)

# What a request to the API server can end with, apart from an answer.
API_ERRORS: Final = (ApiException, HTTPError, HTTPException, OSError, JSONDecodeError)
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
_UNSERVED_PAUSE: Final = 60.0
STALE_SECONDS: Final = STREAM_SECONDS + 60.0  # a stream on which nothing happens, then a list that gets no answer


class Watching:
    """Keeps `on_list` (all objects, after a gap) and `on_event` (type, object) informed from a thread of its own.

    1. on_list comes first, and again whenever events may have been missed.
    2. Both are called from one thread, never at the same time.
    3. They must be quick. Should they raise, that is logged and all is listed anew; `beat` then stops until it goes well.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        on_list: Callable[[list[Object]], None],
        on_event: Callable[[str, Object], None],
        *,
        stop: threading.Event,
        query: Query = NO_QUERY,
        optional: bool = False,
    ) -> None:
        """`optional`: an API server that does not serve this kind has none of them."""
        self._api, self._path, self._query, self._optional = api, path, query, optional
        self._on_list, self._on_event, self._stop = on_list, on_event, stop
        self.listed = threading.Event()
        self.beat = Heartbeat(time.monotonic, STALE_SECONDS)
        self._pause = _FIRST_PAUSE

    def start(self) -> None:
        """Begins in a daemon thread (a blocked read must not hold the process back)."""
        threading.Thread(target=self.run, name=f"watch {self._path}", daemon=True).start()

    def run(self) -> None:
        """Lists and watches until stopped; pauses doubling to 10 s while the API server refuses or is away."""
        while not self._stop.is_set():
            try:
                self.once()
            except API_ERRORS as error:
                self.beat.beat()
                self._failed(error)
            except Exception:  # without this thread the plugin would go by what it saw last, for ever
                log.exception("watching %s broke, again in %.1f s", self._path, self._pause)
                self._rest()

    def _failed(self, error: Exception) -> None:
        if self._optional and status_code(error) == 404:
            self._none_served()
            return
        log.warning("cannot watch %s, again in %.1f s: %s", self._path, self._pause, explain(error))
        self._rest()

    def _rest(self) -> None:
        self._stop.wait(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _none_served(self) -> None:
        self._on_list([])
        self.listed.set()
        self._stop.wait(_UNSERVED_PAUSE)

    def once(self) -> None:
        """One list and the events after it, over as many connections as they take, until a gap."""
        listing = self._api.list(self._path, self._query)
        self._on_list(listing.items)
        self.listed.set()
        self.beat.beat()
        self._pause = _FIRST_PAUSE
        version: str | None = listing.resource_version
        while version is not None and not self._stop.is_set():
            version = self._follow(version)

    def _follow(self, version: str) -> str | None:
        """Reads one connection to its end; the version to go on from, None where a new list is needed."""
        for event in self._api.watch(self._path, version, self._query):
            self.beat.beat()
            if event["type"] == "ERROR":
                if event["object"].get("code") != 410:
                    raise ApiException(status=event["object"].get("code"), reason=event["object"].get("message"))
                return None
            version = str(event["object"]["metadata"]["resourceVersion"])
            if event["type"] != "BOOKMARK":
                self._on_event(event["type"], event["object"])
        self.beat.beat()
        return version
