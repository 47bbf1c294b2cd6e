"""List, then watch, for ever: which request comes next. Pure: what was heard in, an effect out.

            start                        last page                      ended; broken: AskVersion before
  (nothing) -----> ListPage --page--> ... ---------> Watch --events--> ... ---------> Watch again, from the last version
                      ^                                |
                      |  410 Gone (`failed`), a comparison is due, versions went back on the watch
                      +--------------------------------+
  a list older than what was seen before it: Leave

1. A new list is made for 410 Gone, by the clock (a comparison: a watch may be silent, not broken), and when versions went
   back: a watch shows one behind the last one, or the server says that ours is ahead of it; never because a connection broke.
2. Whatever fails is tried again after a pause that doubles, has jitter, and is never shorter than the server's Retry-After.
3. After a failure the API server is asked for its version before the watch goes on: where etcd was restored, a watch from a
   version that is not reached yet shows nothing, and no error (NewTooLargeResourceVersionError is for lists and reads).
4. A watch that ends at once without having shown anything counts as a failure: a server that closes each must not be flooded.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic

from kompakt_client.backoff import Backoff
from kompakt_client.errors import ApiError, Expired, NotFound
from kompakt_client.store import ListMark, ObjectChange, RestoredError, Store, StoredObject, View
from kompakt_core.errors import TryLater

COMPARE_SECONDS: Final = 600.0  # between two lists of a watch that goes well; a quarter of it is random
NOT_SERVED_SECONDS: Final = 60.0  # between two questions about a kind that the API server does not know
SHORT_SECONDS: Final = 1.0  # a watch that shows nothing for so long, and ends
BACKOFF: Final = Backoff(0.2, 10.0)


@dataclass(frozen=True, slots=True)
class ListPage:
    """Ask for a page of the list; the first where `token` is empty."""

    token: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """Follow the watch from that version on."""

    version: int


@dataclass(frozen=True, slots=True)
class AskVersion:
    """Ask for one object of the list: the answer tells which version the API server is at."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, then do what comes after."""

    seconds: float
    then: ListPage | Watch | AskVersion
    why: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing that is known here can be trusted: begin anew with an empty store."""

    why: str


Effect = ListPage | Watch | AskVersion | Pause | Leave


@dataclass(frozen=True, slots=True)
class Step(Generic[View]):
    """What follows from something heard: changes, in order, and the next effect (None: go on reading the watch)."""

    effect: Effect | None
    changes: Sequence[ObjectChange[View]] = ()
    listed: bool = False  # a list has just ended


class Reflection(Generic[View]):
    """Keeps a Store in step with the API server."""

    def __init__(
        self,
        store: Store[View],
        *,
        optional: bool = False,
        compare_seconds: float = COMPARE_SECONDS,
        backoff: Backoff = BACKOFF,
        random: Callable[[], float] = random.random,
    ) -> None:
        """`optional`: an API server that does not serve this kind has none of them."""
        self.store, self._optional = store, optional
        self._compare_seconds, self._backoff, self._random = compare_seconds, backoff, random
        self._listing: list[StoredObject[View]] | None = None  # the pages so far; None: watching
        self._mark: ListMark = store.mark()
        self._compare_at = 0.0
        self._opened = 0.0
        self._failures = 0

    def start(self) -> Effect:
        """The first effect, and the one after which everything is read anew."""
        self._listing, self._mark = [], self.store.mark()
        return ListPage()

    def page(self, objects: Sequence[StoredObject[View]], version: int, token: str, now: float) -> Step[View]:
        """A page of the list; `token` names the next one."""
        assert self._listing is not None
        self._listing += objects
        if token:
            return Step(ListPage(token))
        listing, self._listing = self._listing, None
        try:
            changes = self.store.listed(listing, version, self._mark)
        except RestoredError as error:
            return Step(Leave(str(error)))
        self._compare_at = now + self._compare_seconds * (0.75 + 0.5 * self._random())
        return Step(self._watch(now), changes, listed=True)

    def event(self, kind: str, found: StoredObject[View], now: float) -> Step[View]:
        """ADDED, MODIFIED, DELETED or BOOKMARK."""
        if found.version < self.store.reflected:  # a repetition, or a restored etcd: a list will tell
            return Step(self._anew("the watch went back", now))
        self._failures = 0
        if kind == "BOOKMARK":
            self.store.shown(found.version)
            return Step(None)
        return Step(None, self.store.watched(found, deleted=kind == "DELETED"))

    def ended(self, now: float, *, showed: bool) -> Effect:
        """The watch came to its end in order; `showed`: with at least one event."""
        if not showed and now - self._opened < SHORT_SECONDS:
            return self._pause("the watch ended at once", now)
        self._failures = 0
        return self._next(now)

    def failed(self, error: ApiError, now: float) -> Step[View]:
        """A list, a watch or one event of it (ERROR) brought this error. 410 Gone: everything is listed anew."""
        if self._optional and isinstance(error, NotFound):
            changes = self.store.clear()
            return Step(Pause(NOT_SERVED_SECONDS, self._list()), changes, listed=True)
        if isinstance(error, Expired) or is_ahead(error):
            return Step(self._anew(str(error), now))
        pause = self._pause(str(error), now, error.seconds if isinstance(error, TryLater) and error.status else 0.0)
        return Step(replace(pause, then=AskVersion()) if isinstance(pause.then, Watch) else pause)

    def asked(self, version: int, now: float) -> Effect:
        """The version that the API server is at."""
        if version < self.store.reflected:
            return self._anew("the API server is at an earlier version than its watch has shown", now)
        return self._next(now)

    def _anew(self, why: str, now: float) -> Effect:
        """List at once, but for those who ask for it again and again."""
        self.start()
        pause = self._pause(why, now)
        return pause if self._failures > 1 else ListPage()

    def _pause(self, why: str, now: float, at_least: float = 0.0) -> Pause:
        self._failures += 1
        seconds = self._backoff.seconds(self._failures, at_least, self._random)
        return Pause(seconds, self._next(now + seconds), why)

    def _next(self, now: float) -> ListPage | Watch:
        if self._listing is not None or now >= self._compare_at:
            return self._list()
        return self._watch(now)

    def _list(self) -> ListPage:
        self.start()
        return ListPage()

    def _watch(self, now: float) -> Watch:
        self._opened = now
        return Watch(self.store.reflected)


def is_ahead(error: ApiError) -> bool:
    """Whether the API server does not know our version yet: it was restored, or another one behind the same address lags.

    It answers 504 with these words (k8s.io/apiserver/pkg/storage/errors.go, NewTooLargeResourceVersionError).
    """
    return error.status == 504 and "Too large resource version" in error.message
