"""Keys to reconcile: each at most once in the queue and never twice at the same time; later moments and growing delays.

Namespaces take turns, and none may keep all workers busy: what one tenant makes in masses delays its own jobs.
"""

import asyncio
from collections import Counter
from typing import Final

from kompakt_operator.turns import FairQueue, full

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 60.0
WORKERS: Final = 8  # jobs reconciled side by side
AT_MOST: Final = 6  # of these, jobs of one namespace
Key = tuple[str, str]  # namespace, name


class WorkQueue:
    """For one event loop."""

    def __init__(self) -> None:
        self._line: FairQueue[Key] = FairQueue()
        self._taken = Counter[str]()  # by namespace: keys that workers have
        self._waiting: set[Key] = set()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._held: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, key: Key) -> None:
        """Reconcile it as soon as possible; a key that is held waits for its moment."""
        held = self._held.get(key)
        if held is not None:
            self._at(key, held)
        elif key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._line.put(key[0], key)
            self._filled.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Reconcile it again then, unless an earlier moment is set."""
        self._at(key, asyncio.get_running_loop().time() + max(seconds, 0.0))

    def hold(self, key: Key, extra: float = 0.0) -> float:
        """After a rejection: nothing reconciles the key for a delay that doubles each time, plus `extra`. Returns the delay."""
        delay = self._delay(key) + extra
        self._held[key] = asyncio.get_running_loop().time() + delay
        self._at(key, self._held[key])
        return delay

    def retry(self, key: Key) -> float:
        """After a failure: again after a delay that doubles each time, or at the next event. Returns the delay."""
        delay = self._delay(key)
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """It went well: the next failure starts with the first delay again."""
        self._failures.pop(key, None)

    async def take(self) -> Key:
        """The next key; it is busy until `done`."""
        while (key := self._line.take(full(self._taken, AT_MOST))) is None:
            self._filled.clear()
            await self._filled.wait()
        self._taken[key[0]] += 1
        self._waiting.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: Key, rest: float = 0.0) -> None:
        """The key may be taken again after so many seconds' rest: what happens meanwhile is one more turn, not one for each."""
        self._taken -= Counter([key[0]])
        self._filled.set()
        if rest:
            asyncio.get_running_loop().call_later(rest, self._free, key)
        else:
            self._free(key)

    def _free(self, key: Key) -> None:
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _delay(self, key: Key) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(FIRST_DELAY * 2.0 ** min(failures, 20), LONGEST_DELAY)

    def _at(self, key: Key, moment: float) -> None:
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= moment:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_at(moment, self._ring, key)

    def _ring(self, key: Key) -> None:
        del self._timers[key]
        if self._held.get(key, 0.0) <= asyncio.get_running_loop().time() + 0.001:
            self._held.pop(key, None)
        self.add(key)
