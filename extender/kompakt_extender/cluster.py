"""List and watch: one thread per kind of object, which hands projected values to the loop."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from kompakt_core.errors import InvalidInput, TryLater
from kompakt_extender.api import LIST_SECONDS, Api, Expired, Stream
from kompakt_extender.objects import RawEvent, RawList, StatusObject

_LOG = logging.getLogger(__name__)
_PAGE = 500
_EVENT = msgspec.json.Decoder(RawEvent)
_LIST = msgspec.json.Decoder(RawList)


class _BareMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct):
    metadata: _BareMeta


_BARE = msgspec.json.Decoder(_Bare)
View = TypeVar("View")
Seen = TypeVar("Seen", contravariant=True)


class Sink(Protocol[Seen]):
    """Receives what the cluster holds; called on the loop."""

    def replace(self, views: Mapping[str, Seen]) -> None:
        """All objects there are now, by key."""
        ...

    def set(self, key: str, view: Seen) -> None:
        """One object as it is now."""
        ...

    def remove(self, key: str) -> None:
        """One object is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Resource(Generic[View]):
    """What to watch, and how an object becomes a view; objects are told apart by uid, or `by_name`.

    `watch_seconds`: the server ends the watch after that; `silence_seconds` without a byte mean that the connection is dead.
    """

    name: str
    path: str
    project: Callable[[bytes], View]
    by_name: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    watch_seconds: int = 55
    silence_seconds: float = 70.0


_Change = tuple[str, str, View | None]


class Watcher(Generic[View]):
    """Keeps a sink in step with one kind of object until stopped."""

    def __init__(self, api: Api, resource: Resource[View], sink: Sink[View], listed: Callable[[str], None]) -> None:
        self._api = api
        self._resource = resource
        self._sink = sink
        self._listed = listed
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._heard = time.monotonic()
        self._version = ""  # resourceVersion to watch from; empty: list first
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.name}", daemon=True)

    @property
    def silent_seconds(self) -> float:
        """How long ago the API server last answered."""
        return time.monotonic() - self._heard

    @property
    def name(self) -> str:
        """What is watched."""
        return self._resource.name

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; nothing reaches the sink after this returns (called on the loop, like the sink)."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.stop()

    def _run(self) -> None:
        pause = 0.1
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self._version = self._list()
                self._watch()
                pause = 0.1
            except Expired:
                self._version = ""
            except TryLater as error:
                if not self._stopped.is_set():
                    _LOG.warning("%s: %s", self._resource.name, error)
                self._stopped.wait(pause * random.uniform(0.8, 1.2))
                pause = min(pause * 2, 5.0)
            except Exception:  # a thread that dies unseen would leave the caches to rot: say it and read everything anew
                _LOG.exception("%s: watching failed", self._resource.name)
                self._version = ""
                self._stopped.wait(1.0)

    def _list(self) -> str:
        """Read everything, hand it over, and give the resourceVersion to watch from."""
        views: dict[str, View] = {}
        query: dict[str, str | int] = {**self._resource.query, "limit": _PAGE}
        while True:
            answer = self._api.request("GET", self._resource.path, query=query, seconds=LIST_SECONDS)
            if answer.status == 410:  # the list took longer than the server keeps its pages
                views, query = {}, {**self._resource.query, "limit": _PAGE}
                continue
            if not answer.ok:
                raise TryLater(f"list {self._resource.path}: {answer.message}", 1.0)
            page = _LIST.decode(answer.body)
            for raw in page.items or ():
                key, _, view = self._project(bytes(raw))
                if view is not None:
                    views[key] = view
            if not page.metadata.continue_token:
                break
            query = {**query, "continue": page.metadata.continue_token}
        self._deliver(self._replace, views)
        return page.metadata.resource_version

    def _watch(self) -> None:
        """Follow changes from the last version seen until the watch ends or breaks; every event moves the version on."""
        resource = self._resource
        query = {
            **resource.query,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(resource.watch_seconds),
        }
        self._stream = self._api.watch(resource.path, query, resource.silence_seconds)
        self._heard = time.monotonic()
        for lines in self._stream.batches():
            self._heard = time.monotonic()
            if self._stopped.is_set():
                break
            changes: list[_Change[View]] = []
            for line in lines:
                self._version = self._read(line, changes) or self._version
            if changes:
                self._deliver(self._apply, changes)

    def _read(self, line: bytes, changes: "list[_Change[View]]") -> str:
        event = _EVENT.decode(line)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=StatusObject)
            raise Expired(status.message)
        if event.type == "BOOKMARK":
            return _BARE.decode(event.object).metadata.resource_version
        key, version, view = self._project(bytes(event.object))
        if event.type in ("ADDED", "MODIFIED"):
            changes.append(("set" if view is not None else "remove", key, view))
        elif event.type == "DELETED":
            changes.append(("remove", key, None))
        return version

    def _project(self, raw: bytes) -> tuple[str, str, View | None]:
        """Key, resourceVersion and view of an object; no view of one that cannot be read."""
        meta = _BARE.decode(raw).metadata
        key = meta.name if self._resource.by_name else meta.uid
        try:
            return key, meta.resource_version, self._resource.project(raw)
        except (InvalidInput, ValueError, msgspec.DecodeError) as error:
            _LOG.error("%s %s/%s is left out: %s", self._resource.name, meta.namespace, meta.name, error)
            return key, meta.resource_version, None

    def _deliver(self, act: Callable[..., None], what: object) -> None:
        try:
            self._loop.call_soon_threadsafe(act, what)
        except RuntimeError:  # the loop is closed: the process ends
            self._stopped.set()

    def _replace(self, views: Mapping[str, View]) -> None:
        if not self._stopped.is_set():
            self._sink.replace(views)
            self._listed(self._resource.name)

    def _apply(self, changes: "list[_Change[View]]") -> None:
        if self._stopped.is_set():
            return
        for kind, key, view in changes:
            if view is not None and kind == "set":
                self._sink.set(key, view)
            else:
                self._sink.remove(key)
