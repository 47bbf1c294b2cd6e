"""A thread that keeps a Store in step with the API server, and tells of each change: it performs what Reflection decides."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol

from kompakt_client.backoff import Backoff
from kompakt_client.errors import ApiError, TooLong
from kompakt_client.objects import WatchedKind
from kompakt_client.pages import PageSize
from kompakt_client.reflection import (
    BACKOFF,
    COMPARE_SECONDS,
    AskVersion,
    Effect,
    Leave,
    ListPage,
    Pause,
    Reflection,
    Step,
    Watch,
)
from kompakt_client.requests import Answer, ApiRequest, Query
from kompakt_client.store import ObjectChange, Store, StoredObject, View

_LOG = logging.getLogger(__name__)
LIST_SECONDS = 60.0
BROKEN_SECONDS = 1.0  # after an error that nobody expected, at first
LONGEST_BROKEN = 10.0
_Todo = Effect | None


class Stream(Protocol):
    """An open watch."""

    def batches(self) -> Iterator[list[bytes]]: ...
    def stop(self) -> None: ...


class Source(Protocol):
    """What a Reflector needs of an API server: ApiClient."""

    def exchange(self, request: ApiRequest) -> Answer: ...
    def watch(self, path: str, query: Query, silence: float) -> Stream: ...


class Listener(Protocol[View]):
    """Hears of everything, from one thread at a time and in order; must be quick.

    Should it raise, that is logged, and it hears `replace` with all there is.
    """

    def replace(self, objects: Iterable[StoredObject[View]]) -> None:
        """These are all there are: after the first list, and after trouble."""
        ...

    def change(self, changes: Sequence[ObjectChange[View]]) -> None:
        """What has changed since."""
        ...


def _nothing() -> None:
    pass


class Reflector(Generic[View]):
    """Lists and watches one kind until stopped. Objects are read in its thread; `answered` may be called from any."""

    def __init__(
        self,
        source: Source,
        kind: WatchedKind[View],
        listener: Listener[View],
        *,
        listed: Callable[[], None] = _nothing,
        left: Callable[[str], None] | None = None,
        beat: Callable[[], None] = _nothing,
        stopped: threading.Event | None = None,
        compare_seconds: float = COMPARE_SECONDS,
        backoff: Backoff = BACKOFF,
        whole: bool = False,
        random: Callable[[], float] = random.random,
    ) -> None:
        """`listed` is called after each list, `beat` whenever the thread has gone round.

        `left` is told why nothing here can be trusted any more, and nothing follows; without it all begins anew. `whole`: the
        listener hears of all objects after each list, not of the first alone, since others write beside it what it keeps.
        """
        self._source, self._kind, self._listener = source, kind, listener
        self._listed, self._left, self._beat = listed, left, beat
        self._compare_seconds, self._backoff, self._whole = compare_seconds, backoff, whole
        self._random = random
        self._broken = Backoff(BROKEN_SECONDS, LONGEST_BROKEN)
        self._breaks = 0  # since the listener last took a list in
        self._pages = PageSize(kind.page, kind.page_bytes)
        self._lock = threading.RLock()
        self._stopped = stopped or threading.Event()
        self._stream: Stream | None = None
        self._heard = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self.store: Store[View] = Store(self._kind.indexes)
        self._reflection = Reflection(
            self.store,
            optional=self._kind.optional,
            compare_seconds=self._compare_seconds,
            backoff=self._backoff,
            random=self._random,
        )
        self._fresh = True  # the listener is to hear of everything

    @property
    def name(self) -> str:
        """What is watched."""
        return self._kind.name

    @property
    def silent_seconds(self) -> float:
        """How long ago the API server last answered."""
        return time.monotonic() - self._heard

    def start(self) -> threading.Thread:
        """Begins in a daemon thread: a blocked read must not hold the process back."""
        thread = threading.Thread(target=self.run, name=f"watch {self._kind.name}", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End the thread; the listener may hear what is under way."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.stop()

    def answered(self, raw: bytes) -> None:
        """An object as it stands in the answer to a request of ours; older news than the watch's is ignored."""
        with self._lock:
            self._tell(self.store.answered(self._kind.stored(raw)))

    def gone(self, uid: str) -> None:
        """An answer says that this very object is no more."""
        with self._lock:
            self._tell(self.store.gone(uid))

    @contextmanager
    def held(self) -> Iterator[Store[View]]:
        """The store, to be read from any thread: nothing changes it meanwhile."""
        with self._lock:
            yield self.store

    def run(self) -> None:
        """Until stopped or left."""
        effect: _Todo = self._reflection.start()
        while effect is not None and not self._stopped.is_set():
            try:
                effect = self._perform(effect)
            except Exception:  # a thread that dies unseen would leave the store stale: log it and list everything anew
                if self._stopped.is_set():
                    return
                _LOG.exception("watching %s broke; all is listed anew", self._kind.name)
                self._fresh = True
                self._breaks += 1
                self._stopped.wait(self._broken.seconds(self._breaks, random=self._random))
                effect = self._reflection.start()

    def _perform(self, effect: Effect) -> _Todo:
        match effect:
            case Leave(why):
                return self._leave(why)
            case Pause(seconds, then, why):
                self._rest(seconds, why)
                return then
            case ListPage(token):
                return self._try(lambda: self._list(token))
            case Watch(version):
                return self._try(lambda: self._watch(version))
            case AskVersion():
                return self._try(self._ask)

    def _try(self, call: Callable[[], _Todo]) -> _Todo:
        try:
            return call()
        except ApiError as error:
            self._beat()
            with self._lock:
                step = self._reflection.failed(error, time.monotonic())
                return self._told(step)

    def _list(self, token: str) -> _Todo:
        pages = self._pages
        query: dict[str, str | int] = {**self._kind.query, "limit": pages.objects, **({"continue": token} if token else {})}
        try:
            answer = self._source.exchange(
                ApiRequest("GET", self._kind.path, query, seconds=LIST_SECONDS, most_bytes=pages.most_bytes)
            )
        except TooLong:
            pages.too_long()
            return ListPage(token)
        if (error := answer.error) is not None:
            raise error
        pages.came(len(answer.body))
        found = self._kind.page_of(answer.body)
        self._heard = time.monotonic()
        with self._lock:
            effect = self._told(self._reflection.page(*found, time.monotonic()))
        self._beat()
        return effect

    def _ask(self) -> _Todo:
        query = {**self._kind.query, "limit": 1}
        answer = self._source.exchange(ApiRequest("GET", self._kind.path, query, seconds=LIST_SECONDS))
        if (error := answer.error) is not None:
            raise error
        version = self._kind.page_of(answer.body)[1]
        self._heard = time.monotonic()
        with self._lock:
            return self._reflection.asked(version, time.monotonic())

    def _watch(self, version: int) -> _Todo:
        query: dict[str, str | int] = {
            **self._kind.query,
            "resourceVersion": str(version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._kind.watch_seconds,
        }
        stream = self._stream = self._source.watch(self._kind.path, query, self._kind.silence_seconds)
        self._heard, showed = time.monotonic(), False
        if self._stopped.is_set():  # while it was opened: who stopped us could not see it yet
            stream.stop()
        try:
            for lines in stream.batches():
                self._heard, showed = time.monotonic(), True
                if self._stopped.is_set():
                    return None
                if (effect := self._read(lines)) is not None:
                    return effect
                self._beat()
        finally:
            stream.stop()
        self._beat()
        return self._reflection.ended(time.monotonic(), showed=showed)

    def _read(self, lines: Sequence[bytes]) -> _Todo:
        """Several lines that came together are told of together."""
        found, error = self._understood(lines)
        changes: list[ObjectChange[View]] = []
        effect: _Todo = None
        with self._lock:
            for kind, one in found:
                step = self._reflection.event(kind, one, time.monotonic())
                changes += step.changes
                if (effect := step.effect) is not None:
                    break
            self._tell(changes)
        if effect is None and error is not None:
            raise error
        return effect

    def _understood(self, lines: Sequence[bytes]) -> tuple[list[tuple[str, StoredObject[View]]], ApiError | None]:
        """The events of these lines up to the first that is an ERROR, or nonsense."""
        found: list[tuple[str, StoredObject[View]]] = []
        for line in lines:
            try:
                found.append(self._kind.event_of(line))
            except ApiError as error:
                return found, error
        return found, None

    def _told(self, step: Step[View]) -> _Todo:
        """Under the lock, so that the listener hears in order."""
        if step.listed and (self._fresh or self._whole):
            self._listener.replace(list(self.store))
            self._fresh, self._breaks = False, 0
        else:
            self._tell(step.changes)
        if step.listed:
            self._listed()
        return step.effect

    def _tell(self, changes: Sequence[ObjectChange[View]]) -> None:
        if changes and not self._fresh and not self._stopped.is_set():
            self._listener.change(changes)

    def _rest(self, seconds: float, why: str) -> None:
        if why and not self._stopped.is_set():
            _LOG.warning("cannot watch %s, again in %.1f s: %s", self._kind.name, seconds, why)
        self._stopped.wait(seconds)

    def _leave(self, why: str) -> _Todo:
        _LOG.error("%s: versions went back, was etcd restored? %s", self._kind.name, why)
        if self._left is not None:
            self._left(why)
            return None
        with self._lock:
            self._begin()
            return self._reflection.start()
