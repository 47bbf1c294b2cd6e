"""Training with copies whose sizes arrive later, as on a GPU: the same gradients, and the original where room was short."""

import pytest
import torch

from kompakt_runtime import ledger
from kompakt_runtime.codec import Pending, Room, begin
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session
from tests.support.runtime.small_training import batch, compressing, network, train_step


def gradients(steps: int = 8) -> tuple[list[torch.Tensor], Session]:
    """Weight gradients of the last step. Bounds are new after steps 3 and 5; the step after a new one reads sizes back."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with compressing() as session:
        for seed in range(steps):
            train_step(model, optimizer, batch(seed))
    return [weight.grad for weight in model.parameters()], session


@pytest.fixture
def waiting(monkeypatch):
    """Every tensor waits for its sizes; `ready`: they are there when first asked for."""
    seen: list[Pending] = []

    def watched(x, bound, room):
        seen.append(begin(x, bound, room))
        return seen[-1]

    def start(ready: bool) -> list[Pending]:
        monkeypatch.setattr(ledger, "defers", lambda _t: True)
        monkeypatch.setattr("kompakt_runtime.entry.begin", watched)
        monkeypatch.setattr(Pending, "ready", property(lambda _pending: ready))
        return seen

    return start


@pytest.mark.parametrize("ready", [True, False])
def test_waiting_changes_no_gradient(waiting, ready):
    at_once, before = gradients()
    begun = waiting(ready)
    later, after = gradients()
    assert all(map(torch.equal, at_once, later))
    assert len(begun) > 0
    assert after.figures.compressed == before.figures.compressed > 0
    assert after.figures.violations == 0


def test_where_room_is_short_the_original_stays(waiting, monkeypatch):
    waiting(True)
    monkeypatch.setattr(Room, "of", staticmethod(lambda sizes, elements: Room(0, 0, 0)))
    monkeypatch.setattr("kompakt_runtime.codec.pending.FLOOR", 1)
    assert gradients()[1].figures.raw["NoRoom"] > 0


def test_a_failure_while_settling_leaves_plain_training(waiting, monkeypatch):
    def broken(_pending):
        raise RuntimeError("device lost")

    waiting(True)
    monkeypatch.setattr(Pending, "settle", broken)
    assert gradients()[1].figures.raw["EncodeFailedRuntimeError"] > 0


def test_no_more_than_two_originals_wait(waiting):
    waiting(False)
    book = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0)).hooks.ledger
    book._rooms["layer"] = (0.1, Room(0.04, 0.2, 0.001))
    tensors = [torch.randn(50_000).relu() for _ in range(6)]
    entries = [book.entry(t) for t in tensors]
    for entry, t in zip(entries, tensors, strict=True):
        assert book.compress(entry, t, 0.1, "layer", at_once=False)
        assert sum(other.pending is not None for other in entries) <= ledger.IN_FLIGHT
    assert sum(entry.packed is not None for entry in entries) == 4
