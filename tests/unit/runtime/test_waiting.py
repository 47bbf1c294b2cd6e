"""Training with copies whose sizes arrive later, as on a GPU: the same gradients, and the original where room was short."""

import threading

import pytest
import torch

from kompakt_runtime.codec import Pending, Room, begin, select
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.hooks import actions as storage_actions
from kompakt_runtime.saved import later as packed_later
from kompakt_runtime.saved.handle import Handle
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
        monkeypatch.setattr(packed_later, "defers", lambda _t: True)
        monkeypatch.setattr("kompakt_runtime.saved.entry.begin", watched)
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


def no_room(pending):
    """As if the counters said so."""
    return None, Room.of(pending._packed)


def test_where_room_is_short_it_is_packed_again(waiting, monkeypatch):
    """As where data have drifted since the layer's last tensor: the layer is packed in each step, in as few bytes."""
    before = gradients()[1].figures.layers["2"]
    waiting(True)
    monkeypatch.setattr(Pending, "settle", no_room)
    after = gradients()[1].figures.layers["2"]
    assert (after.plain, after.saved) == (before.plain, before.saved)


def test_where_room_is_short_and_the_backward_pass_is_there_the_original_serves(waiting, monkeypatch):
    waiting(False)
    book = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0)).hooks.ledger
    monkeypatch.setattr(Pending, "settle", no_room)
    book.later.rooms["layer"] = (0.1, Room(0.0))
    t = torch.randn(50_000)
    entry = book.entry(t)
    handle = Handle(entry, t)
    assert book.later.compress(entry, t, 0.1, "layer", at_once=False)
    assert torch.equal(book.open(handle), t)
    assert (entry.packed, entry.demand.reason) == (None, "NoRoom")


def test_a_failure_while_settling_leaves_plain_training(waiting, monkeypatch):
    def broken(_pending):
        raise RuntimeError("device lost")

    waiting(True)
    monkeypatch.setattr(Pending, "settle", broken)
    assert gradients()[1].figures.raw["EncodeFailedRuntimeError"] > 0


def test_originals_wait_up_to_a_budget_of_bytes(waiting, monkeypatch):
    waiting(False)
    sizes = [50_000, 50_000, 100_000, 50_000, 200_000, 50_000]
    monkeypatch.setattr(packed_later, "most_waiting", lambda _device: 4 * 200_000)
    book = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0)).hooks.ledger
    book.later.rooms["layer"] = (0.1, Room(1))
    tensors = [torch.randn(size).relu() for size in sizes]
    entries = [book.entry(t) for t in tensors]
    waits = []
    for entry, t in zip(entries, tensors, strict=True):
        assert book.later.compress(entry, t, 0.1, "layer", at_once=False)
        waits.append([other.nbytes // 4000 for other in entries if other.making is not None])
    # The oldest go first; one that is larger than all that may wait has the budget to itself.
    assert waits == [[50], [50, 50], [50, 50, 100], [50, 100, 50], [200], [50]]


def test_forward_passes_of_two_threads_settle_each_tensor(waiting, monkeypatch):
    """The second comes just when the first has looked at the oldest."""
    waiting(False)
    book = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0)).hooks.ledger
    book.later.rooms["layer"] = (0.1, Room(1))
    tensors = [torch.randn(50_000).relu() for _ in range(5)]
    entries = [book.entry(t) for t in tensors]

    def pack(place: int) -> None:
        book.later.compress(entries[place], tensors[place], 0.1, "layer", at_once=False)

    def ready(_pending) -> bool:
        if not started:
            started.append(threading.Thread(target=pack, args=(4,)))
            started[0].start()
            started[0].join(0.2)
        return True

    started: list[threading.Thread] = []
    for place in range(3):
        pack(place)
    monkeypatch.setattr(Pending, "ready", property(ready))
    pack(3)
    started[0].join()
    assert [entry.packed is not None for entry in entries[:3]] == [True] * 3
    assert {reference() for reference in book.later.flying} == {entry for entry in entries if entry.making is not None}


def test_where_kernels_cannot_run_tensors_pass_through_and_are_counted(monkeypatch):
    plain = gradients_without()
    monkeypatch.setattr(storage_actions, "encoder", lambda *_: select.nobody("NoCompiler"))
    passed, session = gradients()
    assert all(map(torch.equal, plain, passed))
    assert session.figures.raw["NoCompiler"] > 0
    assert session.figures.violations == 0


def gradients_without(steps: int = 8) -> list[torch.Tensor]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for seed in range(steps):
        train_step(model, optimizer, batch(seed))
    return [weight.grad for weight in model.parameters()]
