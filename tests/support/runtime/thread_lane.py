"""A lane of copies without a GPU: a thread that copies one pair after another, as slowly as asked.

It holds no tensor alive, as little as a GPU's copy engine does: what is gone when its turn comes is counted as `lost`, and what
was to be filled gets nothing.
"""

import queue
import threading
import time

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.cost.overhead import Clock


class ThreadMark:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.took = None

    def over(self) -> bool:
        return self.done.is_set()

    def wait(self) -> None:
        assert self.done.wait(60)

    def seconds(self):
        return self.took


class View:
    """Bytes somewhere in memory that somebody else keeps alive."""

    def __init__(self, t: torch.Tensor) -> None:
        self.storage, self.offset, self.length = StorageWeakRef(t.untyped_storage()), t.storage_offset(), t.numel()

    def tensor(self):
        if self.storage.expired():
            return None
        storage = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        if storage is None:
            return None
        return torch.empty(0, dtype=torch.uint8).set_(storage, self.offset, (self.length,))


class ThreadLane:
    """delay: seconds before each copy; rate: pretended bytes a second, as `seconds` tells them; fails_at: which copy raises."""

    def __init__(self, delay: float = 0.0, rate: float = 1e15, fails_at: int = 0) -> None:
        self.device, self.clock = torch.device("cpu"), Clock(False)
        self.delay, self.rate, self.fails_at = delay, rate, fails_at
        self.lost = self.asked = 0
        self.name = "one"
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def chunk(self, nbytes: int) -> torch.Tensor:
        return torch.full((nbytes,), 255, dtype=torch.uint8)

    def copy(self, pairs) -> ThreadMark:
        self.asked += 1
        if self.asked == self.fails_at:
            raise RuntimeError("no link")
        return self._put(pairs)

    def settle(self) -> None:
        """Waits until all that was asked for so far is copied."""
        self._put([]).wait()

    def _put(self, pairs) -> ThreadMark:
        mark = ThreadMark()
        self._jobs.put(([(View(to), View(source)) for to, source in pairs], mark))
        return mark

    def stream(self) -> str:
        return self.name

    def capturing(self) -> bool:
        return self.name == "captured"

    def _work(self) -> None:
        while True:
            pairs, mark = self._jobs.get()
            time.sleep(self.delay)
            for to, source in pairs:
                into, data = to.tensor(), source.tensor()
                if into is None or data is None:
                    self.lost += 1
                else:
                    into.copy_(data)
                del into, data  # they would live until the next copy
            mark.took = sum(to.length for to, _ in pairs) / self.rate
            mark.done.set()
