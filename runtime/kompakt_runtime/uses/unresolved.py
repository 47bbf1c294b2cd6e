"""Saved tensors whose reader is not known yet.

A pack hook sees a tensor and not the slot it is saved in; the node that saves it exists, but nothing leads to it before the
operation returns. Its number is known, though. As soon as a tensor is packed that was computed from the operation's result, or a
module returns it, the node is found behind that and its slots name what they hold.
"""

from collections.abc import Iterable
from typing import Any, Final
from weakref import ref

from kompakt_runtime.compat.graph import held, number_of, slots_of
from kompakt_runtime.uses.consumption import Consumption, consumption
from kompakt_runtime.uses.table import rows_of
from kompakt_runtime.uses.walk import Walk

Node = Any
Handle = Any
# An operation in place on a view: the node that saves is inside of this one and cannot be looked at.
INSIDE: Final = "torch::autograd::CopySlices"
TIDY: Final = 4096


class Unresolved:
    """Those of one thread: numbers of nodes are the thread's own. Handles are not kept alive."""

    def __init__(self) -> None:
        self._by_reader: dict[int, list[ref[Handle]]] = {}
        self._walk = Walk()

    def add(self, handle: Handle, reader: int) -> None:
        """reader: the number of the node that saves it."""
        self._by_reader.setdefault(reader, []).append(ref(handle))

    def __len__(self) -> int:
        self._drop_dead()
        return sum(map(len, self._by_reader.values()))

    def reached(self, roots: Iterable[Node], unfinished: int) -> list[list[Consumption]]:
        """What the nodes at and behind `roots` tell, the oldest first, each in a list of its own. unfinished: the number of the
        youngest node while it saves; after an operation, one more.
        """
        self._drop_dead()
        if not self._by_reader:
            return []
        found: list[tuple[int, list[Consumption]]] = []
        for node in self._walk.fresh(roots, min(self._by_reader), unfinished):
            if uses := self._read_by(node):
                found.append((number_of(node), uses))
            if not self._by_reader:
                break
        self._tidy(unfinished)
        return [uses for _, uses in sorted(found, key=lambda pair: pair[0])]

    def rest(self) -> list[Handle]:
        """Those whose reader never became reachable; nothing is left. For the end of the outermost call."""
        left = [handle for handles in self._by_reader.values() for one in handles if (handle := one()) is not None]
        self._by_reader = {}
        self._walk = Walk()
        return left

    def _read_by(self, node: Node) -> list[Consumption]:
        number = number_of(node)
        if node.name() == INSIDE:
            number = next((near for near in (number, number - 1, number - 2) if near in self._by_reader), number)
        mine = [handle for one in self._by_reader.pop(number, ()) if (handle := one()) is not None]
        return _by_slot(node, mine) if mine else []

    def _drop_dead(self) -> None:
        """Branches that were computed and thrown away."""
        for reader in [reader for reader, handles in self._by_reader.items() if all(one() is None for one in handles)]:
            del self._by_reader[reader]

    def _tidy(self, unfinished: int) -> None:
        if len(self._walk) > TIDY:
            self._walk.forget(min(self._by_reader, default=unfinished))


def _by_slot(node: Node, handles: list[Handle]) -> list[Consumption]:
    """Where the node holds each of the handles; without a slot where it does not say."""
    rows = rows_of(node.name())
    places = _places(node, rows)
    if any(id(handle) not in places for handle in handles):
        places = _places(node, slots_of(node))  # the table does not know them all; this takes longer
    found = []
    for handle in handles:
        slot = places.get(id(handle), "")
        found.append(consumption(handle, node, slot, rows.get(slot)))
    return found


def _places(node: Node, slots: Iterable[str]) -> dict[int, str]:
    return {id(data): slot for slot in slots for data in held(node, slot)}
