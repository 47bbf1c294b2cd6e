"""Encoding on a GPU without waiting for it: how much room that took is known later, and only then is the original let go.

How much room a tensor needs is guessed from what its layer needed before. The counters travel to pinned host memory
behind the kernels. Until they are there nobody may rely on the copy; if the room did not suffice there is none.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from kompakt_runtime.codec.format import Packed
from kompakt_runtime.codec.one_pass_layout import UNIT, most_units

Tensor = Any

SLACK: Final = (
    1.0625  # more than the last tensor of the layer needed: seen between steps of one training, differences are below 2 %
)
FLOOR: Final = 64  # and so many units on top, for small tensors
SHARE: Final = 32  # of a device's memory that originals may take while they wait: one part in so many
LEAST: Final = 1 << 28  # bytes that may wait on any device


@dataclass(frozen=True)
class Room:
    """Bytes an element that a layer's tensors needed."""

    bytes_an_element: float

    @staticmethod
    def of(packed: Packed) -> "Room":
        return Room(sum(part.needed for part in packed.parts) / max(packed.layout.stored, 1))

    def units(self, elements: int, item: int) -> int:
        """What to set aside for so many elements."""
        return min(int(self.bytes_an_element * elements * SLACK / UNIT) + FLOOR, most_units(elements, item))


class Pending:
    """A tensor that was given to the GPU to pack. `settle` tells what became of it."""

    def __init__(self, packed: Packed, counted: Tensor = None, event: Any = None) -> None:
        """counted: units and outliers of its only part, on the host once `event` is over; None where it is whole already."""
        self._packed, self._counted, self._event = packed, counted, event

    @property
    def nbytes(self) -> int:
        """Room that was set aside for the copy."""
        return self._packed.nbytes

    @property
    def ready(self) -> bool:
        """Whether `settle` would not wait."""
        return self._event is None or bool(self._event.query())

    def settle(self) -> tuple[Packed | None, Room]:
        """The copy, or None if the room did not suffice or nothing was gained; and the room its like will need.

        Waits for this tensor's own event, if it has not come yet; never for the whole device.
        """
        packed, whole = self._packed, True
        if self._counted is not None:
            if self._event is not None:
                self._event.synchronize()
            part = packed.parts[0].counted(*self._counted.tolist())  # type: ignore[union-attr]
            packed, whole = replace(packed, parts=(part,)), part.used <= part.capacity
        gained = packed.nbytes < packed.layout.stored * packed.layout.item
        return (packed if whole and gained else None), Room.of(packed)


def most_waiting(device: Any) -> int:
    """How many bytes of originals may wait for their copies on a device, before the host must."""
    if device.type != "cuda":
        return LEAST
    return max(LEAST, int(torch.cuda.get_device_properties(device).total_memory) // SHARE)
