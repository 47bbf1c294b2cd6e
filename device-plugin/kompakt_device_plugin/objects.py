"""The newest known state of some cluster-wide objects by name, filled by a watch and by our own writes."""

import threading
from collections.abc import Iterable

from kompakt_client.requests import Object


class Objects:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, Object] = {}

    def replace(self, objects: Iterable[Object]) -> None:
        """These are all there are."""
        with self._lock:
            self._by_name = {obj["metadata"]["name"]: obj for obj in objects}

    def event(self, kind: str, obj: Object) -> str:
        """One event of a watch; returns the object's name."""
        name = str(obj["metadata"]["name"])
        if kind == "DELETED":
            self.drop(name)
        else:
            self.put(obj)
        return name

    def put(self, obj: Object) -> None:
        """Takes the object unless a newer state of it is known: a watch delivers our own writes after their answers."""
        name = obj["metadata"]["name"]
        with self._lock:
            if name not in self._by_name or _version(obj) >= _version(self._by_name[name]):
                self._by_name[name] = obj

    def drop(self, name: str) -> None:
        """There is no such object."""
        with self._lock:
            self._by_name.pop(name, None)

    def get(self, name: str) -> Object | None:
        """The object, None where there is none."""
        with self._lock:
            return self._by_name.get(name)

    def all(self) -> tuple[Object, ...]:
        """Every object, by name."""
        with self._lock:
            return tuple(self._by_name[name] for name in sorted(self._by_name))

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        with self._lock:
            return tuple(sorted(self._by_name))


def _version(obj: Object) -> int:
    """resourceVersions of one resource may be compared as numbers (Kubernetes KEP-5504)."""
    return int(obj["metadata"]["resourceVersion"])
