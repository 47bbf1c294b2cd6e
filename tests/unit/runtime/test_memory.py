"""Peak memory really drops: live bytes from the allocator's own events, with and without compression."""

import os

import pytest

if "torch" not in os.environ.get("KOMPAKT_REQUIRE", ""):
    pytest.importorskip("torch", reason="torch is not installed: `make sync-torch`")

import torch
from torch import nn
from torch.profiler import profile

from kompakt_runtime import ledger
from kompakt_runtime.config import Config
from kompakt_runtime.session import Session

torch.optim.SGD([torch.zeros(1)])  # loads the compiler once, which takes seconds


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x = torch.randn(32, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def peak_bytes() -> int:
    """Highest sum of allocations less releases in one training step of eight convolutions."""
    torch.manual_seed(0)
    layers = [layer for _ in range(7) for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), *layers, nn.Flatten(), nn.Linear(32 * 256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        step(model, optimizer)
    with profile(profile_memory=True) as recorded:
        step(model, optimizer)
    live = highest = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            highest = max(highest, live)
    return highest


def compressed_peak() -> int:
    session = Session(Config("ErrorBounded"))
    session.start()
    try:
        return peak_bytes()
    finally:
        session.stop()


def test_the_peak_of_a_step_drops_and_a_pinned_original_would_be_noticed(monkeypatch):
    plain, ours = peak_bytes(), compressed_peak()
    print(f"peak of one step: plain {plain / 1e6:.1f} MB, compressed {ours / 1e6:.1f} MB")
    assert ours < 0.7 * plain

    pinned = []
    compress = ledger.Entry.compress
    monkeypatch.setattr(ledger.Entry, "compress", lambda entry, t, bound: pinned.append(t) or compress(entry, t, bound))
    assert compressed_peak() > 0.9 * plain
