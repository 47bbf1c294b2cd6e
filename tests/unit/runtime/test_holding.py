"""What the runtime holds at a time: exact sums, their maxima by step, and the tensor that set them."""

import gc
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kompakt_runtime.codec import Room, encode
from kompakt_runtime.codec.select import PACKING, working_bytes
from kompakt_runtime.figures.holding import PACKED, READ, SAVED, Holding, StepPeak
from kompakt_runtime.saved.entry import SavedStorage

ROWS, WIDE = 64, 256
BYTES = 4 * ROWS * WIDE


class Entry:
    """What Holding sees of one."""

    def __init__(self, held, layer="layer", nbytes=100):
        self.held_bytes, self.layer, self.nbytes, self.share = held, layer, nbytes, None


class Copy:
    """A storage that dies when a test says so."""

    def __init__(self, cdata):
        self.cdata, self.dead = cdata, False

    def expired(self):
        return self.dead


def test_what_takes_an_original_s_place_stands_beside_it_for_a_moment():
    holding, entry = Holding(), Entry(100)
    holding.weigh(entry)
    assert (holding.held, holding.plain, holding.last) == (100, 100, StepPeak(100, 100, "layer", 100, SAVED, 1, 100))
    entry.held_bytes = 30
    holding.weigh(entry, working=7)
    assert (holding.held, holding.plain) == (30, 100)
    assert holding.last == StepPeak(137, 100, "layer", 100, PACKED, 1, 100)


def test_an_unpacked_copy_counts_once_and_as_long_as_it_lives():
    holding, entry, copy = Holding(), Entry(30), Copy(1)
    holding.weigh(entry)
    for _ in range(2):
        holding.unpacked(copy, 100, entry)
    assert holding.last == StepPeak(130, 100, "layer", 100, READ, 1, 130)
    copy.dead = True
    holding.unpacked(Copy(1), 50, entry)
    assert (holding.held, holding.last.held) == (80, 130)


def test_a_dead_entry_gives_back_what_it_held():
    holding = Holding()
    entries = [Entry(10), Entry(20)]
    for entry in entries:
        holding.weigh(entry)
    del entry, entries[0]
    assert (holding.held, holding.plain, holding.last.held) == (20, 100, 30)


def test_the_worst_step_is_told_beside_the_last_and_steps_that_hold_nothing_are_none():
    holding = Holding()
    for held, layer in ((50, "a"), (80, "b"), (60, "c")):
        entry = Entry(held, layer, nbytes=2 * held)
        holding.weigh(entry)
        del entry
        holding.stepped()
    holding.stepped()
    assert holding.worst == StepPeak(80, 160, "b", 160, SAVED, 2, 80)
    assert holding.last == StepPeak(60, 120, "c", 120, SAVED, 3, 60)
    holding.forget()
    assert holding.worst.held == 0


def test_there_is_room_for_what_does_not_raise_the_steps_peak():
    holding = Holding()
    entries = [Entry(10), Entry(20)]
    for entry in entries:
        holding.weigh(entry)
    assert holding.room == 0
    del entry, entries[1]
    assert holding.room == 20
    holding.stepped()
    assert holding.room == 0


def test_what_is_held_over_a_step_s_end_counts_in_the_next():
    holding, entry = Holding(), Entry(50)
    holding.weigh(entry)
    holding.stepped()
    holding.weigh(other := Entry(20))
    assert (holding.last.held, holding.worst.held) == (50, 70)
    del other


def test_a_fork_begins_anew_and_its_parent_s_entries_do_not_count_when_they_die():
    holding, entry = Holding(), Entry(50)
    holding.weigh(entry)
    holding.begin()
    del entry
    assert (holding.held, holding.plain, holding.worst.held) == (0, 0, 0)


def test_sums_agree_after_many_threads():
    holding = Holding()

    def work():
        for size in range(1, 400):
            entry = Entry(size)
            holding.weigh(entry)
            entry.held_bytes = size // 2
            holding.weigh(entry)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert (holding.held, holding.plain) == (0, 0)
    assert holding.worst.held >= 399


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDE, WIDE) for _ in range(4)))


def test_plain_and_packed_inputs_of_linear_layers_add_up_to_the_byte(running):
    """Four inputs; the last is packed beside the others' copies, which takes two bytes an element more than to unpack one."""
    session, model, x = running(), mlp(), torch.randn(ROWS, WIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(2):
        model(x).sum().backward()
        optimizer.step()
    inputs = [x]
    with torch.no_grad():
        for layer in model:
            inputs.append(layer(inputs[-1]))
    working = working_bytes(x, BYTES, PACKING)
    loss = model(x).sum()
    bounds = [entry.bound for entry in session.hooks.ledger._entries.values()]
    # The batch itself has no history, so it is rounded by a seed.
    seeds = (session.hooks.seeds._first + session.hooks.seeds.drawn, None, None, None)
    sizes = [encode(y.flatten(), bound, seed=seed).nbytes for y, bound, seed in zip(inputs[:4], bounds, seeds, strict=True)]
    holding = session.figures.holding
    assert (holding.held, holding.plain) == (sum(sizes), 4 * BYTES)
    loss.backward()
    optimizer.step()
    assert holding.held == holding.plain == 0
    assert holding.last == StepPeak(sum(sizes) + BYTES + working, 4 * BYTES, "3", BYTES, PACKED, 3, sum(sizes) + BYTES)


def test_a_copy_that_lies_aside_while_its_original_is_back_takes_room_too():
    t = torch.randn(ROWS, WIDE)
    entry = SavedStorage(t)
    assert entry.held_bytes == BYTES
    assert entry.compress(t, 0.1)
    packed = entry.held_bytes
    assert packed == entry.packed.nbytes < BYTES
    entry.hold(t)
    assert entry.held_bytes == BYTES + packed


def test_room_for_a_copy_that_is_being_made_counts_beside_the_original():
    t = torch.randn(ROWS, WIDE)
    entry = SavedStorage(t)
    assert entry.start(t, 0.1, Room(1.0))
    assert entry.held_bytes == BYTES + entry.making.copy.nbytes > BYTES
    entry.settle(again=False)
    assert entry.held_bytes == entry.packed.nbytes


def kept(session):
    entries = list(session.hooks.ledger._entries.values())
    passed = list(session.hooks._passed._storages.values())
    return sum(entry.held_bytes for entry in entries) + sum(one.nbytes for one in passed if one.share), (
        sum(entry.nbytes for entry in entries) + sum(one.nbytes for one in passed if one.share)
    )


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = (nn.Linear(WIDE, WIDE) for _ in range(3))
        self.norm = nn.LayerNorm(WIDE)

    def forward(self, x):
        x = self.norm(x)
        return F.dropout(self.down(F.silu(self.gate(x)) * self.up(x)), 0.1)


MODELS = {
    "linear": mlp,
    "relu": lambda: nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE), nn.ReLU(inplace=True), nn.Dropout()),
    "gated": lambda: nn.Sequential(Gated(), Gated()),
    "pooled": lambda: nn.Sequential(
        nn.Unflatten(1, (4, 8, 8)), nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    ),
    "attention": lambda: nn.TransformerEncoderLayer(WIDE, 4, 128, batch_first=True),
}


@pytest.mark.parametrize("gradients", ["Exact", "Bounded"])
@pytest.mark.parametrize("name", MODELS)
def test_the_running_sum_is_what_living_entries_hold_after_each_tensor(name, gradients, running, monkeypatch):
    torch.manual_seed(0)
    session, model = running(activation_gradients=gradients), MODELS[name]()
    holding, pack, unpack = session.figures.holding, session.hooks.pack, session.hooks.unpack
    looks = []

    def look():
        holding.held  # noqa: B018  takes off what died
        read = sum(nbytes for _, nbytes in holding._read.values())
        looks.append((holding._held - read, holding._plain) == kept(session))

    def packing(*what):
        handle = pack(*what)
        look()
        return handle

    def unpacking(handle):
        t = unpack(handle)
        look()
        return t

    monkeypatch.setattr(session.hooks, "pack", packing)
    monkeypatch.setattr(session.hooks, "unpack", unpacking)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(4):
        x = torch.randn(ROWS, WIDE)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(looks) > 8
    assert all(looks)
    gc.collect()
    assert (holding.held, holding.plain) == (0, 0)
    assert holding.last.held > 0


def test_checkpointed_regions_hold_less_than_plain_ones(running):
    session, model = running(), mlp()
    x = torch.randn(ROWS, WIDE, requires_grad=True)

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    whole = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole(x).sum().backward()
    optimizer.step()
    assert session.figures.holding.held == 0
