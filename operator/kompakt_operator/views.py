"""Views of one kind of object by job, as watches, lists and own writes show them, in whatever order these arrive."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

JobId = tuple[str, str]  # namespace and uid: a label alone could be a stranger's in another namespace


class Versioned(Protocol):
    """What every view has: `version` grows with each write of the object."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


View = TypeVar("View", bound=Versioned)


class Views(Generic[View]):
    """The newest view of each object, by its job and name. What has gone does not come back with an older list."""

    def __init__(self) -> None:
        self._views: dict[JobId, dict[str, View]] = {}
        self._listings = 0
        self._buried: set[str] = set()  # uids of what went while a list was under way

    def of(self, job: JobId) -> Mapping[str, View]:
        """One job's views by name."""
        return self._views.get(job, {})

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._views)

    @contextmanager
    def listing(self) -> Iterator[None]:
        """While a list is asked for and taken in."""
        self._listings += 1
        try:
            yield
        finally:
            self._listings -= 1
            if not self._listings:
                self._buried.clear()

    def put(self, job: JobId, view: View) -> None:
        """Take in a view, unless a newer one of the same object is known."""
        known = self.of(job).get(view.name)
        older = known is not None and known.uid == view.uid and known.version > view.version
        if not older and view.uid not in self._buried:
            self._views.setdefault(job, {})[view.name] = view

    def drop(self, job: JobId, name: str, uid: str) -> None:
        """The object has gone; a successor of the same name stays."""
        if self._listings:
            self._buried.add(uid)
        own = self._views.get(job, {})
        if name in own and own[name].uid == uid:
            del own[name]
            if not own:
                del self._views[job]

    def keep(self, uids: Iterable[str], version: int, job: JobId | None = None) -> set[JobId]:
        """Drop what a list (of one job's objects, or of all) taken at that version lacks; the jobs that lost something.

        What is newer than the list stays.
        """
        there = set(uids)
        lacking = [
            (owner, view)
            for owner in (list(self._views) if job is None else [job])
            for view in self.of(owner).values()
            if view.uid not in there and view.version <= version
        ]
        for owner, view in lacking:
            self.drop(owner, view.name, view.uid)
        return {owner for owner, _ in lacking}
