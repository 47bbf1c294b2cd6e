"""Small trainings that are given a budget of memory, on a device that takes what the runtime counts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

ROWS, WIDTH, OTHER = 256, 64, 1_000_000


class Counted:
    """A device of which activations take what the runtime counts, and everything else `OTHER` bytes."""

    def __init__(self, figures: Any, device: Any) -> None:
        self._holding = figures.holding

    def there(self) -> int:
        return 10 * OTHER

    def now(self) -> int:
        return OTHER + int(self._holding.held)

    def peak(self) -> int:
        return OTHER + int(self._holding.worst.held)


class EvenClock:
    """By which all that is packed takes as long, so that plans are the same in each run."""

    def __init__(self, gpu: bool) -> None:
        self._looks = 0

    def now(self) -> int:
        self._looks += 1
        return self._looks

    def seconds(self, start: int, end: int) -> float:
        return 1e-3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 4))


def products() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6)))


def trained(session: Any, model: Any, steps: int, rows: Callable[[int], int] = lambda _: ROWS) -> list[int]:
    """Bytes of each step's peak."""
    optimizer, peaks = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), []
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(rows(step), WIDTH, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        optimizer.step()
        peaks.append(OTHER + session.figures.holding.last.held)
    return peaks
