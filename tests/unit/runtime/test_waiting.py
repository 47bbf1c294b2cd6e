"""Training with copies whose sizes arrive later, as on a GPU: the same gradients, and the original where room was short."""

import pytest
import torch
from torch import nn

from kompakt_runtime import ledger
from kompakt_runtime.codec import Pending, Room, begin
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session

torch.set_num_threads(1)
torch.optim.SGD([torch.zeros(1)])  # loads the compiler once, which takes seconds


def gradients(steps: int = 8) -> tuple[dict[str, torch.Tensor], Session]:
    """Weight gradients of the last step. Bounds are new after steps 3 and 5; the step after a new one reads sizes back."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    session = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0))
    session.start()
    try:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 3, 10, 10, generator=torch.Generator().manual_seed(step))).square().sum().backward()
            optimizer.step()
    finally:
        session.stop()
    return {name: weight.grad for name, weight in model.named_parameters()}, session


def waiting(monkeypatch, ready: bool) -> list[Pending]:
    """Every tensor waits for its sizes; `ready`: they are there when first asked for."""
    seen: list[Pending] = []

    def watched(x, bound, room):
        seen.append(begin(x, bound, room))
        return seen[-1]

    monkeypatch.setattr(ledger, "defers", lambda _t: True)
    monkeypatch.setattr("kompakt_runtime.entry.begin", watched)
    monkeypatch.setattr(Pending, "ready", property(lambda _pending: ready))
    return seen


@pytest.mark.parametrize("ready", [True, False])
def test_waiting_changes_no_gradient(monkeypatch, ready):
    at_once, before = gradients()
    begun = waiting(monkeypatch, ready)
    later, after = gradients()
    assert all(torch.equal(at_once[name], later[name]) for name in at_once)
    assert len(begun) > 0
    assert after.figures.compressed == before.figures.compressed > 0
    assert after.figures.violations == 0


def test_where_room_is_short_the_original_stays_and_the_next_has_room(monkeypatch):
    waiting(monkeypatch, True)
    of = Room.of
    monkeypatch.setattr(Room, "of", staticmethod(lambda sizes, elements: Room(0, 0, 0)))
    monkeypatch.setattr("kompakt_runtime.codec.pending.FLOOR", 1)
    _, session = gradients()
    assert session.figures.raw["NoRoom"] > 0
    monkeypatch.setattr(Room, "of", staticmethod(of))


def test_a_failure_while_settling_leaves_plain_training(monkeypatch):
    waiting(monkeypatch, True)

    def broken(_pending):
        raise RuntimeError("device lost")

    monkeypatch.setattr(Pending, "settle", broken)
    _, session = gradients()
    assert session.figures.raw["EncodeFailedRuntimeError"] > 0


def test_no_more_than_two_originals_wait():
    session = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0))
    book = session.hooks.ledger
    book._rooms["layer"] = (0.1, Room(0.04, 0.2, 0.001))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "defers", lambda _t: True)
        patch.setattr(Pending, "ready", property(lambda _pending: False))
        tensors = [torch.randn(50_000).relu() for _ in range(6)]
        entries = [book.entry(t) for t in tensors]
        for entry, t in zip(entries, tensors, strict=True):
            assert book.compress(entry, t, 0.1, "layer", at_once=False)
            assert sum(other.pending is not None for other in entries) <= ledger.IN_FLIGHT
    assert sum(entry.packed is not None for entry in entries) == 4
