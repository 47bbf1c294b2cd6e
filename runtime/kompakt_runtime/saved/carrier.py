"""Copies of saved tensors in host memory: out behind what computes, back ahead of it. Only the device waits for the device.

A lane carries copies one after another, in the order in which they were given to it. So host memory that is free again may be
given away at once, even while a copy still reads or writes it: the next copy comes after that one.

Device memory that a copy reads or fills is let go of only when that copy is over, or when the stream that owns it was told to
wait for the copy: whatever gets the memory next on that stream comes later. The host, which runs ahead, need not know.
"""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.codec import Packed, decode
from kompakt_runtime.saved.lane import Lane, Mark

Tensor = Any

# A power of two, which torch's allocator of pinned memory would make of it anyway.
CHUNK: Final = 1 << 22
ALIGNED: Final = 16  # where a tensor begins among those that travel together


class Hosted:
    """What an entry of the ledger holds whose tensor, or whose packed copy, is in host memory."""

    def __init__(self, carrier: "Carrier", chunks: list[Tensor], sections: list[Tensor], packed: Packed | None) -> None:
        """packed: the copy that goes, if it is one; only what describes it is kept."""
        plain = sum(section.numel() * section.element_size() for section in sections)
        self.nbytes = plain if packed is None else packed.nbytes
        self.packed = None if packed is None else _emptied(packed)
        self.opened = False
        self.chunks = chunks
        self.kinds = [(section.dtype, section.numel()) for section in sections]
        self.arrival: Arrival | None = None  # it is on the device again, or on its way
        self._carrier, self._home, self._unwanted = carrier, carrier.home, carrier.unwanted

    def __del__(self) -> None:
        # Any thread may be the one that lets go, even inside of the carrier's own work: so no lock here.
        self._home.extend(self.chunks)
        self._forsake()

    def _forsake(self) -> None:
        """What was on its way here is not wanted any more; a copy may still fill it."""
        if self.arrival is not None:
            self._unwanted.append(self.arrival)
        self.arrival = None

    def decode(self) -> Tensor:
        """The entry's storage as a 1-D tensor; as often as asked."""
        landed = self.land()
        return decode(landed) if isinstance(landed, Packed) else landed

    def land(self) -> Tensor | Packed:
        """What went, on the device again."""
        self.opened = True
        if self.arrival is not None and self.arrival.stream != self._carrier.lane.stream():
            self._forsake()  # its memory would go back to the other stream while this one still reads it
        arrival, self.arrival = self.arrival, None
        if arrival is None:
            self._carrier.late += 1
            arrival = self._carrier.back(self)
        arrival.mark.wait()
        return arrival.sections[0] if self.packed is None else self.packed.filled(iter(arrival.sections))


@dataclass(frozen=True, eq=False)
class Arrival:
    """Tensors that a copy reads or fills; their memory belongs to `stream`."""

    sections: list[Tensor]
    mark: Mark
    stream: Any


class Carrier:
    """Host memory in chunks that are used again, and the device memory of copies that are under way."""

    def __init__(self, lane: Lane, budget: int, chunk: int = CHUNK) -> None:
        """budget: bytes of host memory that may be taken."""
        self.lane, self.budget, self._chunk = lane, budget, chunk
        self.home: deque[Tensor] = deque()  # free chunks
        self.unwanted: deque[Arrival] = deque()
        self.taken = 0  # bytes of all chunks, free ones too
        self.late = 0  # tensors that were not fetched ahead
        self._leaving: deque[Arrival] = deque()
        self._lock = threading.Lock()

    def out(self, what: Tensor | Packed) -> tuple[Hosted, Mark] | None:
        """Begins to copy a 1-D tensor or a packed one, whose memory it keeps; None where host memory is used up."""
        sections = [what] if not isinstance(what, Packed) else what.sections
        with self._lock:
            chunks = self._chunks(sum(_room(section.dtype, section.numel()) for section in sections))
            if chunks is None:
                return None
            hosted = Hosted(self, chunks, sections, what if isinstance(what, Packed) else None)
            self._leaving.append(self._given([(to, source) for source, to in _pairs(sections, chunks)], sections))
            return hosted, self._leaving[-1].mark

    def back(self, hosted: Hosted) -> Arrival:
        """Begins to copy it back into new memory of the calling thread's stream."""
        with self._lock:
            sections = [torch.empty(count, dtype=dtype, device=self.lane.device) for dtype, count in hosted.kinds]
            return self._given(_pairs(sections, hosted.chunks), sections)

    def release(self, most: int) -> None:
        """Lets go of what has left, and makes the calling thread's stream wait for the oldest copies but `most`."""
        with self._lock:
            while self._leaving and (len(self._leaving) > most or self._over(self._leaving[0])):
                if not self._over(self._leaving[0]):
                    if self._leaving[0].stream != self.lane.stream():
                        return
                    self._leaving[0].mark.wait()
                self._leaving.popleft()
            while self.unwanted and self._over(self.unwanted[0]):
                self.unwanted.popleft()

    @property
    def held(self) -> int:
        """Copies whose device memory is kept alive here."""
        return len(self._leaving) + len(self.unwanted)

    def _over(self, arrival: Arrival) -> bool:
        return not self.lane.capturing() and arrival.mark.over()

    def _given(self, pairs: list[tuple[Tensor, Tensor]], sections: list[Tensor]) -> Arrival:
        with torch.no_grad():
            return Arrival(sections, self.lane.copy(pairs), self.lane.stream())

    def _chunks(self, nbytes: int) -> list[Tensor] | None:
        count = -(-nbytes // self._chunk)
        fresh = max(0, count - len(self.home))
        if self.taken + fresh * self._chunk > self.budget:
            return None
        for _ in range(fresh):
            self.home.append(self.lane.chunk(self._chunk))
            self.taken += self._chunk
        return [self.home.popleft() for _ in range(count)]


def _room(dtype: Any, count: int) -> int:
    return int(-(-count * dtype.itemsize // ALIGNED) * ALIGNED)


def _pairs(sections: list[Tensor], chunks: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Bytes of the sections beside their places in the chunks, cut where a chunk ends."""
    found, place = [], 0
    for section in sections:
        data = section.view(torch.uint8)
        end = place + data.numel()
        for number in range(place // len(chunks[0]), -(-end // len(chunks[0]))) if data.numel() else ():
            start = number * len(chunks[0])
            first, last = max(place, start), min(end, start + len(chunks[0]))
            found.append((data[first - place : last - place], chunks[number][first - start : last - start]))
        place += _room(section.dtype, section.numel())
    return found


def _emptied(packed: Packed) -> Packed:
    """The same without memory."""
    return packed.filled(section.new_empty(0) for section in packed.sections)
