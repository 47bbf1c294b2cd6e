"""Turns by namespace: one that asks for much waits for itself, and not the others for it."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """First come, first served within a namespace; namespaces take turns."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Item]] = {}  # none is empty; the namespace whose turn is next stands first

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def put(self, namespace: str, item: Item) -> None:
        self._lines.setdefault(namespace, deque()).append(item)

    def take(self, skip: Container[str] = ()) -> Item | None:
        """The next item of a namespace that is not in `skip`; None where there is none."""
        namespace = next((name for name in self._lines if name not in skip), None)
        if namespace is None:
            return None
        line = self._lines.pop(namespace)
        item = line.popleft()
        if line:
            self._lines[namespace] = line  # behind all others
        return item


class Turns:
    """Lets so many through at a time, `each` of one namespace. For one event loop."""

    def __init__(self, at_once: int, each: int) -> None:
        self._free, self._each = at_once, each
        self._taken = Counter[str]()
        self._waiting: FairQueue[tuple[str, asyncio.Future[None]]] = FairQueue()

    @asynccontextmanager
    async def of(self, namespace: str, seconds: float) -> AsyncIterator[None]:
        """A turn. Raises TimeoutError where it does not come within `seconds`."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(namespace, (namespace, turn))
        self._go_on()
        try:
            async with asyncio.timeout(seconds):
                await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():  # else it never came
                self._free += 1
                self._taken -= Counter([namespace])
                self._go_on()

    def _go_on(self) -> None:
        """Turns to those who still wait."""
        while self._free and (found := self._waiting.take(full(self._taken, self._each))) is not None:
            namespace, turn = found
            if not turn.done():
                self._free -= 1
                self._taken[namespace] += 1
                turn.set_result(None)


def full(taken: Mapping[str, int], most: int) -> set[str]:
    """Namespaces that have as many as they may."""
    return {name for name, number in taken.items() if number >= most}
