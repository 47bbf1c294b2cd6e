"""Encoding on a GPU without waiting for it: sizes that depend on the data arrive later, and only then is the original let go.

How much room a tensor needs is guessed from what its layer needed before. The true sizes travel to pinned host memory
behind the kernels. Until they are there nobody may rely on the copy; if the room did not suffice there is none.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from kompakt_runtime.codec.format import Layout, Packed
from kompakt_runtime.codec.tiles import Part, Sizes

Tensor = Any

SLACK = 1.0625  # more than the last tensor of the layer needed: seen between steps of one training, differences are below 2 %
FLOOR = 256  # and so many blocks, words and outliers on top, for small tensors


@dataclass(frozen=True)
class Room:
    """Blocks, words and outliers an element that a layer's tensors needed."""

    blocks: float
    words: float
    outliers: float

    @staticmethod
    def of(sizes: Sizes, elements: int) -> "Room":
        return Room(sizes.blocks / elements, sizes.words / elements, sizes.outliers / elements)

    def sizes(self, elements: int) -> Sizes:
        """What to set aside for a part of so many elements; `nonzero` has no limit."""
        blocks, words, outliers = (int(share * elements * SLACK) + FLOOR for share in (self.blocks, self.words, self.outliers))
        return Sizes(elements, blocks, words, outliers)


class Pending:
    """A tensor that was given to the GPU to pack. `settle` tells what became of it."""

    def __init__(self, layout: Layout, error_bound: float, stochastic: bool, parts: list[Part], truths: list[Tensor]) -> None:
        self._packed = Packed(layout, error_bound, stochastic, tuple(parts), None, truths[0].device)
        self._event: Any = None
        truth = torch.stack(truths)
        if truth.device.type == "cuda":
            self._truth = torch.empty(truth.shape, dtype=truth.dtype, pin_memory=True)
            self._truth.copy_(truth, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(truth.device))
        else:
            self._truth = truth

    @property
    def ready(self) -> bool:
        """Whether `settle` would not wait."""
        return self._event is None or bool(self._event.query())

    def settle(self) -> tuple[Packed | None, Room]:
        """The copy, or None if the room did not suffice or nothing was gained; and the room its like will need.

        Waits for this tensor's own event, if it has not come yet; never for the whole device.
        """
        if self._event is not None:
            self._event.synchronize()
        rows = [Sizes(*row) for row in self._truth.tolist()]
        elements = self._packed.layout.stored
        room = Room.of(
            Sizes(*(sum(getattr(row, name) for row in rows) for name in ("nonzero", "blocks", "words", "outliers"))), elements
        )
        if any(_exceeds(row, part.sizes) for row, part in zip(rows, self._packed.parts, strict=True)):
            return None, room
        parts = tuple(_settled(part, row) for part, row in zip(self._packed.parts, rows, strict=True))
        packed = replace(self._packed, parts=parts)
        return (packed if packed.nbytes < elements * packed.layout.item else None), room


def _exceeds(truth: Sizes, room: Sizes) -> bool:
    return truth.blocks > room.blocks or truth.words > room.words or truth.outliers > room.outliers


def _settled(part: Part, truth: Sizes) -> Part:
    return replace(part, sizes=truth, bitmap=None if truth.nonzero == part.elements else part.bitmap)
