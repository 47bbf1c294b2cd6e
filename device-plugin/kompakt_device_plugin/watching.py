"""A Reflector whose objects are plain JSON: hands every state of some objects to two callbacks."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from kompakt_client.objects import WatchedKind
from kompakt_client.reflector import Reflector, Source
from kompakt_client.requests import NO_QUERY, Object, Query
from kompakt_client.store import ObjectChange, StoredObject
from kompakt_device_plugin.health import Heartbeat

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 240
STREAM_SECONDS: Final = 270.0  # of silence on a watch
COMPARE_SECONDS: Final = 1800.0  # thousands of nodes ask one API server
STALE_SECONDS: Final = STREAM_SECONDS + 60.0  # a stream on which nothing happens, then a list that gets no answer


def read_object(raw: bytes) -> Object:
    """The object without who wrote which field, which is half of it."""
    found: Object = msgspec.json.decode(raw)
    found["metadata"].pop("managedFields", None)
    return found


def read_slim_pod(raw: bytes) -> Object:
    """Of a pod what a node's agent reads: the rest of hundreds of pods would be megabytes."""
    pod = read_object(raw)
    spec = pod.get("spec") or {}
    containers = [{"resources": container.get("resources")} for container in spec.get("containers") or ()]
    pod["spec"] = {"nodeName": spec.get("nodeName"), "containers": containers}
    pod["status"] = {"phase": (pod.get("status") or {}).get("phase")}
    return pod


class Watching:
    """Keeps `on_list` (all objects, after a gap) and `on_event` (type, object) informed from a thread of its own.

    1. on_list comes first, and again should either have raised; what other lists bring comes as events.
    2. Both are called from one thread, never at the same time.
    3. They must be quick. Should they raise, that is logged and all is listed anew; `beat` then stops until it goes well.
    """

    def __init__(
        self,
        api: Source,
        path: str,
        on_list: Callable[[list[Object]], None],
        on_event: Callable[[str, Object], Any],
        *,
        stop: threading.Event,
        query: Query = NO_QUERY,
        optional: bool = False,
        read: Callable[[bytes], Object] | None = None,
    ) -> None:
        """`optional`: an API server that does not serve this kind has none of them. `stop` is set where etcd was restored."""
        self._on_list, self._on_event, self._stop = on_list, on_event, stop
        self.listed = threading.Event()
        self.beat = Heartbeat(time.monotonic, STALE_SECONDS)
        kind: WatchedKind[Object] = WatchedKind(
            path, path, read or read_object, query, optional, watch_seconds=WATCH_SECONDS, silence_seconds=STREAM_SECONDS
        )
        self.reflector = Reflector(
            api,
            kind,
            self,
            listed=self.listed.set,
            left=self._left,
            beat=lambda: self.beat.beat(),
            stopped=stop,
            compare_seconds=COMPARE_SECONDS,
        )
        self.start, self.run = self.reflector.start, self.reflector.run

    def replace(self, objects: Iterable[StoredObject[Object]]) -> None:
        """All there are."""
        self._on_list([found.view for found in objects if found.view is not None])

    def change(self, changes: Sequence[ObjectChange[Object]]) -> None:
        """One after the other; an object that took another's name comes after the other went."""
        for change in changes:
            before, after = change.before, change.after
            if before and before.view is not None and (after is None or after.uid != before.uid):
                self._on_event("DELETED", before.view)
            if after and after.view is not None:
                self._on_event("MODIFIED" if before else "ADDED", after.view)

    def _left(self, why: str) -> None:
        """What the node believes is of a history that is no more: this process ends, and the next one begins with nothing."""
        log.error("this process ends: %s", why)
        self._stop.set()
