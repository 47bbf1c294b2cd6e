"""What the API server holds of one kind of object, as lists, a watch and the answers to our own requests show it.

These arrive in any order. Versions of one kind may be compared as numbers (KEP-5504), so each rule is one comparison:

1. The watch has shown everything up to `reflected`. An answer that is not newer than that says nothing new: what it shows was
   changed or deleted since, and the watch has told.
2. Of two states of one name the higher version counts, whichever came first and whatever their uids. That also holds for a
   state that is not kept: of an answer without a view, and of an object reported gone, the version is remembered until the
   watch has come that far (`_unkept`).
3. A deletion takes away what has its uid and no higher version; a successor of the same name stays.
4. A list takes away what it lacks, but nothing newer than itself.
5. A uid that an answer has reported gone (`gone`) is buried: no event, answer or list of before brings it back. It is forgotten
   when the watch has told of the deletion, or by a list that began later.
6. No list may be older than what was seen before it began (`newest`). One that is comes from a restored etcd: the caller must
   begin anew, since everything here may be of a history that never happened.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

View = TypeVar("View")
Key = tuple[str, str]  # namespace ("" for objects of the cluster) and name
Index = Callable[[View], Iterable[str]]
"""The values under which a view is found."""


@dataclass(frozen=True, slots=True)
class StoredObject(Generic[View]):
    """One state of one object; `view` is what its reader made of it, None where nothing is to be kept."""

    namespace: str
    name: str
    uid: str
    version: int
    view: View | None = None

    @property
    def key(self) -> Key:
        """What no two objects share at one time."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[View]):
    """One object before and after; None: it was or is not there. The uids differ where one was replaced under its name."""

    before: StoredObject[View] | None
    after: StoredObject[View] | None


@dataclass(frozen=True, slots=True)
class ListMark:
    """What was known when a list was asked for."""

    floor: int
    buried: frozenset[str]


class RestoredError(Exception):
    """A list is older than what was seen before: etcd was restored from a backup."""


_NO_INDEXES: Final[Mapping[str, Index[object]]] = {}


class Store(Generic[View]):
    """Objects by namespace and name. Not safe for several threads: whoever shares one brings a lock."""

    def __init__(self, indexes: Mapping[str, Index[View]] = _NO_INDEXES) -> None:
        self._objects: dict[Key, StoredObject[View]] = {}
        self._buried: set[str] = set()
        self._unkept: dict[Key, int] = {}
        self._indexes = indexes
        self._found: dict[str, dict[str, dict[Key, View]]] = {name: {} for name in indexes}
        self.reflected = 0  # the watch has shown everything up to this version
        self.newest = 0  # the highest version that anything has shown
        self.owed: StoredObject[View] | None = None  # the first that an answer has shown and the watch not yet

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[StoredObject[View]]:
        return iter(self._objects.values())

    def get(self, name: str, namespace: str = "") -> StoredObject[View] | None:
        """The object of that name."""
        return self._objects.get((namespace, name))

    def by(self, index: str, value: str) -> Sequence[View]:
        """The views that an index finds under a value."""
        return tuple(self._found[index].get(value, {}).values())

    # What is heard

    def watched(self, found: StoredObject[View], *, deleted: bool = False) -> list[ObjectChange[View]]:
        """An event of the watch. One that is no newer than the last is a repetition and changes nothing."""
        if found.version <= self.reflected:
            return []
        self.shown(found.version)
        if not deleted:
            return self._put(found)
        self._buried.discard(found.uid)
        return self._drop(found.key, found.uid, found.version)

    def shown(self, version: int) -> None:
        """The watch has come this far: a bookmark."""
        self.reflected = max(self.reflected, version)
        self.newest = max(self.newest, version)
        if self._unkept:
            self._unkept = {key: one for key, one in self._unkept.items() if one > self.reflected}
        if self.owed is not None and self.owed.version <= self.reflected:
            self.owed = None

    def answered(self, found: StoredObject[View]) -> list[ObjectChange[View]]:
        """The answer to a request of our own, however late it comes."""
        if found.version <= self.reflected:
            return []
        self.newest = max(self.newest, found.version)
        if self.owed is None:
            self.owed = found
        changes = self._put(found)
        if found.view is None:
            self._unkept[found.key] = max(found.version, self._unkept.get(found.key, 0))
        return changes

    def gone(self, uid: str) -> list[ObjectChange[View]]:
        """An answer says that this very object is deleted for good."""
        self._buried.add(uid)
        held = [one for one in self if one.uid == uid]
        self._unkept |= {one.key: one.version for one in held}  # nor may what had its name before come back
        return [change for one in held for change in self._remove(one.key)]

    def mark(self) -> ListMark:
        """Call when a list is asked for, before it is sent."""
        return ListMark(self.newest, frozenset(self._buried))

    def listed(self, objects: Iterable[StoredObject[View]], version: int, mark: ListMark) -> list[ObjectChange[View]]:
        """A whole list, as of `version`. Raises RestoredError."""
        if version < mark.floor:
            raise RestoredError(f"the list is of version {version}, but {mark.floor} was seen before it was asked for")
        self._buried -= mark.buried
        # One that is buried is not there any more, and whatever had its name before it even less.
        there = {found.key: found for found in objects if found.uid not in self._buried}
        lacking = [held.key for held in self if held.key not in there and held.version <= version]
        changes = [change for key in lacking for change in self._remove(key)]
        for found in there.values():
            changes += self._replace(found, version)
        self.shown(version)
        return changes

    def clear(self) -> list[ObjectChange[View]]:
        """There are none: the kind is not served."""
        self._buried.clear()
        self._unkept.clear()
        self.owed = None
        return [change for key in list(self._objects) for change in self._remove(key)]

    # How it is kept

    def _put(self, found: StoredObject[View]) -> list[ObjectChange[View]]:
        if found.uid in self._buried or self._version_of(found.key) >= found.version:
            return []
        return self._set(found)

    def _replace(self, found: StoredObject[View], version: int) -> list[ObjectChange[View]]:
        """As listed: also against what is newer, unless it is newer than the list."""
        if self._objects.get(found.key) == found or self._version_of(found.key) > version:
            return []
        return self._set(found)

    def _version_of(self, key: Key) -> int:
        """The highest version seen of that name, as far as it still matters; -1 for none."""
        held = self._objects.get(key)
        return max(held.version if held is not None else -1, self._unkept.get(key, -1))

    def _drop(self, key: Key, uid: str, version: int) -> list[ObjectChange[View]]:
        held = self._objects.get(key)
        return self._remove(key) if held is not None and held.uid == uid and held.version <= version else []

    def _set(self, found: StoredObject[View]) -> list[ObjectChange[View]]:
        if found.view is None:
            return self._remove(found.key)
        before = self._objects.get(found.key)
        if before is not None:
            self._unindex(before)
        self._objects[found.key] = found
        for name, index in self._indexes.items():
            for value in index(found.view):
                self._found[name].setdefault(value, {})[found.key] = found.view
        return [ObjectChange(before, found)]

    def _remove(self, key: Key) -> list[ObjectChange[View]]:
        held = self._objects.pop(key, None)
        if held is None:
            return []
        self._unindex(held)
        return [ObjectChange(held, None)]

    def _unindex(self, held: StoredObject[View]) -> None:
        assert held.view is not None
        for name, index in self._indexes.items():
            for value in index(held.view):
                entries = self._found[name].get(value, {})
                entries.pop(held.key, None)
                if not entries:
                    self._found[name].pop(value, None)
