"""Peak memory really drops: live bytes from the allocator's own events, with and without compression."""

import pytest
import torch
from torch import nn

from benchmarks.memory import peak_of
from kompakt_runtime.saved.entry import SavedStorage
from tests.support.runtime.small_training import compressing


def peaks(mode: str | None, steps: int) -> list[int]:
    """Highest sum of allocations less releases in each of the first training steps of eight convolutions."""
    torch.manual_seed(0)
    layers = [layer for _ in range(7) for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), *layers, nn.Flatten(), nn.Linear(32 * 256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        x = torch.randn(32, 3, 16, 16, generator=torch.Generator().manual_seed(1))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    with compressing(mode, min_tensor_bytes=65536):
        return [peak_of(step, torch.device("cpu")) for _ in range(steps)]


@pytest.fixture(scope="module")
def plain() -> int:
    return peaks(None, 1)[0]


def test_the_first_steps_have_nearly_the_peak_of_later_ones(plain, monkeypatch):
    """All three of them are measured ones, the fourth is not."""
    *first, later = peaks("ErrorBounded", 4)
    print(f"peaks, MB: plain {plain / 1e6:.1f}, ours {[round(peak / 1e6, 1) for peak in first]}, then {later / 1e6:.1f}")
    assert max(first) < 0.7 * plain
    assert max(first) < 1.1 * later

    monkeypatch.setattr("kompakt_runtime.bounds.layer.UNMEASURED", 1e-6)
    assert peaks("ErrorBounded", 1)[0] > 0.8 * plain, "first bounds that are no bounds would be noticed"


def test_a_pinned_original_would_be_noticed(plain, monkeypatch):
    pinned = []
    compress = SavedStorage.compress
    monkeypatch.setattr(SavedStorage, "compress", lambda entry, t, *how: pinned.append(t) or compress(entry, t, *how))
    assert peaks("ErrorBounded", 1)[0] > 0.9 * plain
