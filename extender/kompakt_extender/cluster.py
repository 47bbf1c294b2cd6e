"""Reflectors of the extender: one thread per kind of object, which hands projected values to the loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kompakt_client.backoff import Backoff
from kompakt_client.objects import WatchedKind
from kompakt_client.reflection import BACKOFF
from kompakt_client.reflector import Reflector, Source
from kompakt_client.store import ObjectChange, StoredObject
from kompakt_extender.views import gang_uid

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
    """What to watch, and how an object becomes a view; objects are told apart by uid, or `by_name`, which in a namespace is as
    gang_uid gives it. `optional`: an API server that does not serve this kind has none of them.

    `watch_seconds`: the server ends the watch after that; `silence_seconds` without a byte mean that the connection is dead.
    """

    name: str
    path: str
    project: Callable[[bytes], View]
    by_name: bool = False
    optional: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    watch_seconds: int = 55
    silence_seconds: float = 70.0
    backoff: Backoff = BACKOFF

    def key(self, found: StoredObject[View]) -> str:
        """By what the sink knows an object."""
        if not self.by_name:
            return found.uid
        return gang_uid(found.namespace, found.name) if found.namespace else found.name

    @property
    def kind(self) -> WatchedKind[View]:
        """The same for a Reflector."""
        return WatchedKind(
            self.name,
            self.path,
            self.project,
            self.query,
            self.optional,
            watch_seconds=self.watch_seconds,
            silence_seconds=self.silence_seconds,
        )


class Watcher(Generic[View]):
    """Keeps a sink in step with one kind of object until stopped."""

    def __init__(
        self,
        api: Source,
        resource: Resource[View],
        sink: Sink[View],
        listed: Callable[[str], None],
        left: Callable[[str], None] | None = None,
    ) -> None:
        """`listed` hears the name after each list; `left` why nothing that the sink holds can be trusted: etcd was restored."""
        self._resource, self._sink, self._listed = resource, sink, listed
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        told_left = None if left is None else lambda why: self._deliver(left, why)
        self._reflector = Reflector(
            api,
            resource.kind,
            self,
            listed=lambda: self._deliver(self._was_listed, resource.name),
            left=told_left,
            backoff=resource.backoff,
            whole=True,  # answers to our own requests are written into the sink as well
        )
        self.start = self._reflector.start

    @property
    def silent_seconds(self) -> float:
        """How long ago the API server last answered."""
        return self._reflector.silent_seconds

    @property
    def name(self) -> str:
        """What is watched."""
        return self._resource.name

    def stop(self) -> None:
        """End the thread; nothing reaches the sink after this returns (called on the loop, like the sink)."""
        self._stopped = True
        self._reflector.stop()

    # Called in the reflector's thread

    def replace(self, objects: Iterable[StoredObject[View]]) -> None:
        """These are all there are."""
        views = {self._resource.key(found): found.view for found in objects if found.view is not None}
        self._deliver(self._sink.replace, views)

    def change(self, changes: Sequence[ObjectChange[View]]) -> None:
        """Several that came together reach the loop together."""
        self._deliver(self._apply, changes)

    def _deliver(self, act: Callable[..., None], what: object) -> None:
        def unless_stopped() -> None:
            if not self._stopped:
                act(what)

        try:
            self._loop.call_soon_threadsafe(unless_stopped)
        except RuntimeError:  # the loop is closed: the process ends
            self._reflector.stop()

    # Called on the loop

    def _was_listed(self, name: str) -> None:
        self._listed(name)

    def _apply(self, changes: Sequence[ObjectChange[View]]) -> None:
        for change in changes:
            before, after = change.before, change.after
            if before and (after is None or self._resource.key(before) != self._resource.key(after)):
                self._sink.remove(self._resource.key(before))
            if after and after.view is not None:
                self._sink.set(self._resource.key(after), after.view)
