"""How many bytes the runtime holds for backward passes at a time, and the most of each step, counted as they change.

Four things are held: what entries keep (the storage, a copy, or both while one takes the other's place), copies that were
unpacked and are still read, originals whose reader is not known yet or that are being packed, and the codec's working memory.
Beside them runs the sum that plain autograd would hold: the plain bytes of all living entries. No torch here.
"""

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

SAVED: Final = "saved"
PACKED: Final = "packed"
READ: Final = "read"
MOST_WORDS: Final = 80  # of a layer's name in a pod's last words, which have little room


class Held(Protocol):
    """An entry, or a tensor that passes through. held_bytes: what it takes now; share: ours."""

    share: Any

    @property
    def nbytes(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def layer(self) -> str: ...


class Reference(Protocol):
    """A weak reference to a storage."""

    @property
    def cdata(self) -> int: ...
    def expired(self) -> bool: ...


class HeldShare:
    """One entry's part of the sums; given back when it dies with the entry, on whichever thread, whatever runs there."""

    __slots__ = ("_gone", "held", "plain")

    def __init__(self, gone: deque[tuple[int, int]], plain: int) -> None:
        self._gone, self.plain, self.held = gone, plain, 0

    def __del__(self) -> None:
        self._gone.append((self.held, self.plain))


@dataclass(frozen=True)
class StepPeak:
    """The most bytes held in a step, what plain autograd would have held at most in it, and the tensor that set the first: the
    layer that saved it, its plain bytes, and whether it was saved, packed or read then. step: its number, from 1; stored: the
    most without working memory and without copies that stand beside their originals for a moment.
    """

    held: int = 0
    plain: int = 0
    layer: str = ""
    nbytes: int = 0
    doing: str = ""
    step: int = 0
    stored: int = 0

    @property
    def tensor(self) -> str:
        return f"{self.layer or 'outside of modules'}, {self.doing}" if self.doing else ""


class Holding:
    """The sums of one process, and their maxima. Sums change at once when they grow; what died is taken off before the next
    look, and only growth makes a maximum, so these are exact.
    """

    def __init__(self) -> None:
        self.reserved = 0  # the most that torch's allocator has taken from this process's GPU
        self.allocated = 0  # the most of it that tensors had at a time
        self.begin()

    def begin(self) -> None:
        """Nothing is held yet: at first, and in a process that was forked, whose parent's entries die for nobody's account."""
        self._lock = threading.Lock()
        self._gone: deque[tuple[int, int]] = deque()
        self._read: dict[int, tuple[Reference, int]] = {}
        self._held = self._plain = self._step = 0
        self.forget()

    def forget(self) -> None:
        """Maxima start anew from what is held now."""
        with self._lock:
            self._last = self._worst = StepPeak()
            self._now = StepPeak(self._held, self._plain, stored=self._held)
            self._most_plain = 0

    def weigh(self, entry: Held, working: int = 0) -> None:
        """After each change of what an entry keeps: what took its place stood beside it, and beside `working` bytes."""
        with self._lock:
            self._take_off()
            doing = PACKED
            if entry.share is None:
                entry.share, doing = HeldShare(self._gone, entry.nbytes), SAVED
                self._plain += entry.nbytes
            share, held = entry.share, entry.held_bytes
            if held != share.held or working:
                replaced = share.held if held < share.held else 0
                self._held += held - share.held
                share.held = held
                self._see(replaced + working, entry, doing)

    def unpacked(self, copy: Reference, nbytes: int, entry: Held, working: int = 0) -> None:
        """A copy was unpacked (or is read once more) and lives as long as its storage."""
        with self._lock:
            self._take_off()
            if copy.cdata not in self._read:
                self._read[copy.cdata] = (copy, nbytes)
                self._held += nbytes
                self._see(working, entry, READ)

    def _take_off(self) -> None:
        while self._gone:
            held, plain = self._gone.popleft()
            self._held -= held
            self._plain -= plain
        for key in [key for key, (copy, _) in self._read.items() if copy.expired()]:
            self._held -= self._read.pop(key)[1]

    def _see(self, beside: int, entry: Held, doing: str) -> None:
        """beside: what is there for a moment."""
        now, held = self._now, self._held + beside
        plain, stored = max(now.plain, self._plain), max(now.stored, self._held)
        if held > now.held:
            self._now = StepPeak(held, plain, entry.layer, entry.nbytes, doing, stored=stored)
        elif plain > now.plain or stored > now.stored:
            self._now = replace(now, plain=plain, stored=stored)

    @property
    def held(self) -> int:
        """Bytes held now."""
        with self._lock:
            self._take_off()
            return self._held

    @property
    def room(self) -> int:
        """Bytes that may be held more, and the most of this step stays what it is."""
        with self._lock:
            self._take_off()
            return max(0, self._now.stored - self._held)

    @property
    def plain(self) -> int:
        """What plain autograd would hold now."""
        with self._lock:
            self._take_off()
            return self._plain

    def stepped(self) -> None:
        """An optimizer step is over; the next begins with what is still held."""
        with self._lock:
            self._take_off()
            self._step += 1
            if self._now.held:
                self._last = replace(self._now, step=self._step)
                self._worst = max(self._worst, self._last, key=lambda peak: peak.held)
                self._most_plain = max(self._most_plain, self._last.plain)
            self._now = StepPeak(self._held, self._plain, stored=self._held)

    def said(self) -> dict[str, Any]:
        """For the process's file: of the worst step, and the same of the last one; {} where nothing was held."""
        worst, last = self.worst, self.last
        if not worst.held:
            return {}
        return {
            "bytes": worst.held,
            "plainBytes": worst.plain,
            "step": worst.step,
            "tensor": worst.tensor[:MOST_WORDS],
            "tensorBytes": worst.nbytes,
            "lastBytes": last.held,
            "lastPlainBytes": last.plain,
            "lastTensor": last.tensor[:MOST_WORDS],
            "reservedBytes": self.reserved,
            "allocatedBytes": self.allocated,
        }

    @property
    def now(self) -> StepPeak:
        """Of the step that is not over."""
        return replace(self._now, step=self._step + 1)

    @property
    def last(self) -> StepPeak:
        """The last step that held something; before there is one, what there is of the first."""
        return self._last if self._last.held else self.now

    @property
    def worst(self) -> StepPeak:
        """The step that held most; `plain` is the most of all steps."""
        most = max(self._worst, self.now, key=lambda peak: peak.held)
        return replace(most, plain=max(self._most_plain, self._now.plain))
