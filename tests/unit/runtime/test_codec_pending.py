"""Packing without waiting: the same bytes with room set aside, nothing read back from the device, too little room is told."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from kompakt_runtime import codec
from kompakt_runtime.codec import select, tiles
from kompakt_runtime.codec.grid import make_grid
from kompakt_runtime.codec.pending import FLOOR, SLACK
from tests.support.runtime.tensors import DTYPES, normal, same_bits


def sample(dtype: torch.dtype, count: int = 70_000) -> torch.Tensor:
    x = normal(count).relu().to(dtype)
    x[[3, 5000]] = torch.tensor([torch.nan, -torch.inf], dtype=dtype)
    x[7] = -2
    return x


def room_of(packed: codec.Packed) -> codec.Room:
    return codec.Room.of(packed.sizes, packed.layout.stored)


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_with_room_the_bytes_are_the_same(dtype, seed):
    x = sample(dtype)
    at_once = codec.encode(x, 0.05, seed=seed)
    packed, room = codec.begin(x, 0.05, room_of(at_once), seed=seed).settle()
    assert packed.to_bytes() == at_once.to_bytes()
    assert same_bits(codec.decode(packed), codec.decode(at_once))
    assert packed.nbytes >= len(packed.to_bytes()), "unused room counts"
    a_part = FLOOR * (1 + 4 + 8 + x.element_size())
    assert packed.nbytes <= SLACK * at_once.nbytes + len(packed.parts) * a_part
    assert room == room_of(at_once)


@pytest.mark.parametrize("name", ["blocks", "words", "outliers"])
def test_too_little_room_gives_no_copy_but_says_what_was_needed(name):
    x = sample(torch.float32)
    x[::50] = 1e30
    whole = codec.encode(x, 0.05)
    enough = room_of(whole)
    short = codec.Room(**{key: getattr(enough, key) / (2 if key == name else 1) for key in ("blocks", "words", "outliers")})
    packed, room = codec.begin(x, 0.05, short).settle()
    assert packed is None
    assert room.blocks == enough.blocks
    assert name == "blocks" or room == enough, "of blocks that have no room, words are not counted"


def test_what_cannot_be_packed_is_not_begun():
    room = codec.Room(1, 1, 1)
    assert codec.begin(torch.arange(5), 0.1, room) is None
    assert codec.begin(torch.ones(5), 1e-44, room) is None
    with pytest.raises(ValueError, match="error_bound"):
        codec.begin(torch.ones(5), 0.0, room)


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_read_back_from_the_device(dtype, seed):
    """On tensors that have a device and shapes but no data, whatever reads a value or needs a size from the data raises."""
    grid = make_grid(dtype, 0.1, seed is not None)
    with FakeTensorMode():
        x = torch.empty(70_000, device="cuda", dtype=dtype)
        part, _ = tiles.encode_part(x, grid, seed, 0, tiles.Sizes(70_000, 2000, 9000, 300))
        tiles.decode_part(part, grid, torch.empty_like(x))
        with pytest.raises(DataDependentOutputException):
            tiles.encode_part(x, grid, seed, 0)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (RuntimeError("Failed to find C compiler. Please specify via CC environment variable"), "NoCompiler"),
        (PermissionError("read-only file system: /root/.triton"), "NoCompiler"),
        (ModuleNotFoundError("No module named 'triton'"), "NoTriton"),
        (RuntimeError("ptxas failed"), "TritonFailedRuntimeError"),
    ],
)
def test_the_encoder_is_chosen_with_a_reason(problem, reason):
    assert select.encoder(torch.device("cpu"), torch.float32).name == "torch"
    assert select.obstacle(problem) == reason


@pytest.mark.parametrize("hip", [None, "6.2"])
def test_devices_that_nobody_tried_are_named(monkeypatch, hip):
    monkeypatch.setattr(torch.version, "hip", hip)
    names = {"cpu": "", "meta": "", "cuda:0": "ROCm" if hip else "", "mps": "MPS", "xpu:1": "XPU"}
    assert {name: select.untried(torch.device(name)) for name in names} == names


@pytest.mark.parametrize("seed", [None, 1])
def test_kernels_that_pack_or_unpack_otherwise_are_noticed_before_they_are_used(seed):
    """Here the reference itself stands in for the kernels, once with one bit changed."""

    def encode_part(x, grid, given, first):
        part, counted = tiles.encode_part(x, grid, given, first)
        if given == seed:
            part.words[3] ^= 1
        return part, counted

    def decode_part(part, grid, out):
        tiles.decode_part(part, grid, out)
        out[out == 0] = 0.5

    device = torch.device("cpu")
    assert select.same_bytes(tiles, device, torch.bfloat16)
    for wrong in (
        SimpleNamespace(encode_part=encode_part, decode_part=tiles.decode_part),
        SimpleNamespace(encode_part=tiles.encode_part, decode_part=decode_part),
    ):
        assert not select.same_bytes(wrong, device, torch.bfloat16)
