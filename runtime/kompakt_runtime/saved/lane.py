"""What carries copies between a device and the host, beside what computes. The only part that needs a GPU to be tried."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kompakt_runtime.cost.overhead import Clock

Tensor = Any


class Mark(Protocol):
    """The end of a copy that was given to a lane."""

    def over(self) -> bool:
        """Never waits."""

    def wait(self) -> None:
        """What the calling thread's stream is given from now on comes after it; on a GPU the host does not wait."""

    def seconds(self) -> float | None:
        """How long it took by itself; None while it is not over."""


class Lane(Protocol):
    """What carries copies between one device and the host."""

    device: Any
    clock: Clock

    def chunk(self, nbytes: int) -> Tensor:
        """Host memory (1-D uint8) that copies may go to."""

    def copy(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Mark:
        """Copies (to, from) in this order, after all that the calling thread's stream has been given and all earlier copies.
        The tensors must live until that is over.
        """

    def stream(self) -> Any:
        """The calling thread's."""

    def capturing(self) -> bool:
        """Whether that stream is being captured: nothing may be asked of the device then."""


class CudaLane:
    """A stream beside those that compute, and pinned memory. Has not run on a GPU yet."""

    def __init__(self, device: Any) -> None:
        self.device, self.clock = device, Clock(True)
        self._beside = torch.cuda.Stream(device)

    def chunk(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> "CudaMark":
        self._beside.wait_stream(self.stream())
        with torch.cuda.stream(self._beside):
            begun = self.clock.now()
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
            return CudaMark(self, begun, self.clock.now())

    def stream(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def capturing(self) -> bool:
        return bool(torch.cuda.is_current_stream_capturing())


@dataclass(frozen=True)
class CudaMark:
    lane: CudaLane
    begun: Any
    ended: Any

    def over(self) -> bool:
        return bool(self.ended.query())

    def wait(self) -> None:
        self.lane.stream().wait_event(self.ended)

    def seconds(self) -> float | None:
        return self.lane.clock.seconds(self.begun, self.ended)


def lane_of(device: Any) -> Lane | None:
    """None where no link copies by itself."""
    return CudaLane(device) if device.type == "cuda" else None
