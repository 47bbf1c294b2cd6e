"""Packing without waiting: what is not counted yet is no copy, too little room is told, and who packs is chosen with a reason."""

import dataclasses

import pytest
import torch

from kompakt_runtime import codec
from kompakt_runtime.codec import select
from kompakt_runtime.codec.format import Layout
from kompakt_runtime.codec.one_pass_layout import Offsets, OnePassPart, most_units
from kompakt_runtime.codec.pending import FLOOR, LEAST, SLACK, Pending, Room, most_waiting
from tests.support.runtime.tensors import DTYPES, normal, same_bits

ELEMENTS, CAPACITY = 70_000, 5000


class Event:
    """Of a stream that comes to it when somebody waits."""

    def __init__(self) -> None:
        self.over = False

    def query(self) -> bool:
        return self.over

    def synchronize(self) -> None:
        self.over = True


def launched(used: int, outliers: int = 3) -> Pending:
    """As if kernels had been given a tensor of float32, which ask for so many units of CAPACITY."""
    words = torch.empty(Offsets.of(ELEMENTS, 4, CAPACITY).end, dtype=torch.int32)
    part = OnePassPart(torch.float32, ELEMENTS, CAPACITY, words, torch.empty(0))
    packed = codec.Packed(Layout(torch.float32, (ELEMENTS,), (1,)), 0.1, False, (part,), None, words.device)
    return Pending(packed, torch.tensor([used, outliers], dtype=torch.int32), Event())


def test_a_copy_is_one_when_its_event_is_over_and_it_had_room():
    pending = launched(CAPACITY)
    assert not pending.ready
    packed, room = pending.settle()
    assert pending.ready
    assert packed is not None
    assert (packed.outliers, packed.parts[0].used) == (3, CAPACITY)
    assert room == Room.of(packed) == Room(16 * CAPACITY / ELEMENTS)


def test_too_little_room_gives_no_copy_but_says_what_was_needed():
    packed, room = launched(CAPACITY + 1).settle()
    assert packed is None
    assert room == Room(16 * (CAPACITY + 1) / ELEMENTS)
    units = room.units(ELEMENTS, 4)
    assert units >= SLACK * (CAPACITY + 1) - 1 + FLOOR
    assert Room(1e9).units(ELEMENTS, 4) == most_units(ELEMENTS, 4)


def test_a_copy_as_large_as_the_original_is_none():
    pending = launched(CAPACITY)
    small = dataclasses.replace(pending._packed.layout, shape=(2000,))
    pending._packed = dataclasses.replace(pending._packed, layout=small)
    assert pending.settle()[0] is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_on_a_cpu_what_is_begun_is_there(dtype):
    x = normal(ELEMENTS).relu().to(dtype)
    pending = codec.begin(x, 0.05, Room(0))
    wanted = codec.encode(x, 0.05)
    assert pending.ready
    packed, room = pending.settle()
    assert same_bits(codec.decode(packed), codec.decode(wanted))
    assert packed.to_bytes() == wanted.to_bytes()
    assert room == Room.of(wanted)


def test_what_cannot_be_packed_is_not_begun():
    room = Room(1)
    assert codec.begin(torch.arange(5), 0.1, room) is None
    assert codec.begin(torch.ones(5), 1e-44, room) is None
    assert codec.begin(torch.tensor([1e30, 2e30]), 1e-5, room) is None
    with pytest.raises(ValueError, match="error_bound"):
        codec.begin(torch.ones(5), 0.0, room)


def test_where_nobody_packs_elements_are_stored_as_they_are(monkeypatch):
    monkeypatch.setattr(codec, "encoder", lambda *_: select.nobody("NoTriton"))
    x = normal(ELEMENTS)
    packed = codec.encode(x, 0.1)
    assert packed.raw
    assert torch.equal(codec.decode(packed), x)
    assert codec.begin(x, 0.1, Room(1)) is None


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (RuntimeError("Failed to find C compiler. Please specify via CC environment variable"), "NoCompiler"),
        (PermissionError("read-only file system: /root/.triton"), "NoCompiler"),
        (ModuleNotFoundError("No module named 'triton'"), "NoTriton"),
        (RuntimeError("ptxas failed"), "TritonFailedRuntimeError"),
    ],
)
def test_who_packs_is_chosen_with_a_reason(problem, reason, monkeypatch):
    def fails(*_):
        raise problem

    assert select.encoder(torch.device("cpu"), torch.float32).name == "torch"
    monkeypatch.setattr(select, "agrees", fails)
    monkeypatch.setattr(select, "kernels", select.plain)
    works = select._on_gpu.__wrapped__(0, torch.float32)
    assert (works.name, works.reason) == ("none", reason)


def test_kernels_that_disagree_are_not_used(monkeypatch):
    monkeypatch.setattr(select, "kernels", select.plain)
    for agree in (True, False):
        monkeypatch.setattr(select, "agrees", lambda *_, agree=agree: agree)
        assert select._on_gpu.__wrapped__(0, torch.float16).reason == ("" if agree else "TritonDiffers")


def test_float64_passes_through_on_a_gpu():
    works = select.encoder(torch.device("cuda", 0), torch.float64)
    assert (works.name, works.reason) == ("none", "Float64")


@pytest.mark.parametrize("hip", [None, "6.2"])
def test_devices_that_nobody_tried_are_named(monkeypatch, hip):
    monkeypatch.setattr(torch.version, "hip", hip)
    names = {"cpu": "", "meta": "", "cuda:0": "ROCm" if hip else "", "mps": "MPS", "xpu:1": "XPU"}
    assert {name: select.untried(torch.device(name)) for name in names} == names


def test_originals_of_a_share_of_the_memory_may_wait(monkeypatch):
    class Device:
        total_memory = 128 << 30

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Device)
    assert most_waiting(torch.device("cuda", 0)) == 4 << 30
    Device.total_memory = 1 << 30
    assert most_waiting(torch.device("cuda", 0)) == most_waiting(torch.device("cpu")) == LEAST
