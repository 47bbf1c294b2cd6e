"""The one-pass kernels against plain torch operations, in Triton's interpreter: run by test_one_pass.py in a process of its own,
because triton decides once, when it is imported, whether it interprets.
"""

import pytest
import torch

from kompakt_runtime import codec
from kompakt_runtime.codec import one_pass, one_pass_layout, select
from kompakt_runtime.codec.one_pass_reference import expected
from kompakt_runtime.hooks import actions as storage_actions
from kompakt_runtime.saved import later
from tests.support.runtime.small_training import batch, compressing, network, train_step
from tests.support.runtime.tensors import same_bits

torch.set_num_threads(1)
# numpy, which stands in for the GPU here, warns of NaN, infinity and sums that wrap.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
TILE = one_pass_layout.TILE
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
KINDS = ["normal", "relu", "planted", "awkward", "zero", "one negative zero", "far apart", "subnormal"]


def sample(dtype: torch.dtype, kind: str, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, generator=generator, dtype=torch.float64)
    if kind == "relu":
        x = x.relu()
    if kind == "planted":
        x[::97] *= 100
    if kind == "zero":
        x[:] = 0
    if kind == "one negative zero":
        x = x.abs()
        x[5] = -0.0
    if kind == "far apart":
        x = x.exp() ** 4
    x = x.to(dtype)
    if kind == "awkward":
        bits = torch.randint(-(1 << 15), (1 << 15) - 1, (count,), generator=generator)
        wide = (bits << 16).to(torch.int32) if dtype.itemsize == 4 else bits.to(torch.int16)
        x[::40] = wide.view(dtype)[::40]
    if kind == "subnormal":
        x[::3] = torch.finfo(dtype).smallest_normal / 4
        x[1::3] = -torch.finfo(dtype).smallest_normal / 2
    return x


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """The kernels pack tensors on the CPU too."""
    for module in (codec, storage_actions):
        monkeypatch.setattr(module, "encoder", lambda *_: select.kernels())


def unpacked(part: one_pass_layout.OnePassPart) -> torch.Tensor:
    out = torch.empty(part.elements, dtype=part.dtype)
    one_pass.unpack(part, out)
    return out


@pytest.mark.parametrize("bound", [0.1, 0.004])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_give_back_what_the_reference_says(dtype, kind, bound):
    x = sample(dtype, kind, 2 * TILE + 5)
    wanted, widths = expected(x, bound)
    part = select.packed_whole(x, bound)
    assert one_pass.widths(part).tolist() == widths
    assert part.used == part.capacity
    assert same_bits(unpacked(part), wanted)


@pytest.mark.parametrize("bound", [3.0, 0.3, 0.02, 2e-3, 1e-4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_holds_and_signs_and_zeros_stay(dtype, bound):
    x = sample(dtype, "awkward", TILE)
    back = unpacked(select.packed_whole(x, bound))
    finite = x.isfinite()
    assert bool(((back.double() - x.double()).abs()[finite] <= bound).all())
    assert torch.equal(back == 0, x == 0)
    assert torch.equal(torch.signbit(back), torch.signbit(x))
    assert same_bits(back[~finite], x[~finite])


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 4097])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_of_elements(dtype, count):
    x = sample(dtype, "normal", count)
    packed = codec.encode(x, 0.125)
    assert packed.raw == (count < TILE)
    assert same_bits(codec.decode(packed), x if packed.raw else expected(x, 0.125)[0])


def views(dtype: torch.dtype) -> list[torch.Tensor]:
    x = sample(dtype, "planted", 2 * TILE + 8)
    grid = x[: 2 * TILE].view(2, 8, 16, 16)
    return [
        x[1:-1],  # begins between two words, where elements have 16 bits
        x[2:-2],
        grid.to(memory_format=torch.channels_last),
        grid.permute(3, 1, 0, 2),
        x.repeat(2)[: 4 * TILE].view(-1, 2, 64)[:, 1],
        x.repeat(2)[: 4 * TILE].view(-1, 64)[:, :40],
        x[: 2 * TILE, None].expand(2 * TILE, 7),
    ]


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_any_kind_come_back_with_their_strides(dtype, place):
    x = views(dtype)[place]
    packed = codec.encode(x, 0.1)
    back = codec.decode(packed)
    assert not packed.raw
    assert (back.shape, back.stride()) == (x.shape, codec._layout(x).strides)
    assert bool(((back.double() - x.double()).abs() <= 0.1).all())
    assert not same_bits(back, x)


def test_too_little_room_is_told_and_nothing_is_written_beyond_it(monkeypatch):
    x = sample(torch.bfloat16, "planted", 4 * TILE + 3)
    whole = select.packed_whole(x, 0.1)
    assert whole.outliers > 0
    for capacity in (0, whole.used // 2, whole.used - 1):
        short = with_guards(monkeypatch, lambda room=capacity: one_pass.pack(x, 0.1, room))
        assert one_pass.counters(short)[0].tolist() == [whole.used, whole.outliers]
        rest = one_pass_layout.Offsets.of(x.numel(), 2, capacity).rest
        assert short.words[rest:].view(torch.int16)[:3].tolist() == x.view(torch.int16)[-3:].tolist()


def test_nothing_is_written_beside_what_is_unpacked(monkeypatch):
    part = select.packed_whole(sample(torch.float16, "planted", 3 * TILE + 7), 0.1)
    assert same_bits(with_guards(monkeypatch, lambda: unpacked(part)), unpacked(part))


def with_guards(monkeypatch, action):
    """Runs with every buffer lying between guard elements; out-of-range stores are silent otherwise."""
    guarded = []
    empty = torch.empty

    def fenced(size, **options):
        guarded.append(empty(size + 128, **options).fill_(77))
        return guarded[-1][64 : 64 + size]

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", fenced)
        result = action()
    assert guarded
    assert all((wide[:64] == 77).all() and (wide[-64:] == 77).all() for wide in guarded)
    return result


def test_normal_numbers_need_five_to_six_bits_at_a_tenth():
    x = sample(torch.bfloat16, "normal", 8 * TILE)
    part = select.packed_whole(x, 0.1)
    assert set(one_pass.widths(part).tolist()) <= {5, 6}
    assert part.used * 128 / x.numel() <= 6.1


def test_a_bound_that_no_code_keeps_leaves_the_elements_as_they_are():
    x = sample(torch.bfloat16, "normal", TILE) * 1e30
    packed = codec.encode(x, 1e-30)
    assert packed.raw
    assert same_bits(codec.decode(packed), x)


def test_pieces_are_the_tensor(monkeypatch):
    monkeypatch.setattr(codec, "TILES_AT_ONCE", 2)
    packed = codec.encode(sample(torch.float32, "planted", 5 * TILE + 9), 0.1)
    found = list(codec.pieces(packed))
    assert [place for place, _ in found] == [0, 2 * TILE, 4 * TILE]
    assert same_bits(torch.cat([piece for _, piece in found]), codec.decode(packed))


def test_sections_travel_apart_from_what_describes_them():
    packed = codec.encode(sample(torch.float32, "planted", 2 * TILE), 0.1)
    away = [section.clone() for section in packed.sections]
    emptied = packed.filled(section.new_empty(0) for section in packed.sections)
    assert sum(section.numel() for section in emptied.sections) == 0
    assert same_bits(codec.decode(emptied.filled(iter(away))), codec.decode(packed))
    with pytest.raises(TypeError, match="has no bytes"):
        packed.to_bytes()


def test_room_of_an_earlier_tensor_serves_the_next():
    whole = codec.encode(sample(torch.float32, "planted", 3 * TILE), 0.1)
    x = sample(torch.float32, "planted", 3 * TILE).flip(0)
    packed, room = codec.begin(x, 0.1, codec.Room.of(whole)).settle()
    assert same_bits(codec.decode(packed), codec.decode(codec.encode(x, 0.1)))
    assert (packed.outliers, room) == (whole.outliers, codec.Room.of(packed))
    assert codec.begin(x, 0.1, codec.Room(room.bytes_an_element / 4)).settle() == (None, room)


def test_seeds_are_refused():
    with pytest.raises(NotImplementedError, match="nearest"):
        codec.encode(sample(torch.float32, "normal", TILE), 0.1, seed=1)


def test_the_comparison_before_use_passes_and_would_fail(monkeypatch):
    device = torch.device("cpu")
    assert select.agrees(device, torch.bfloat16)
    unpack = one_pass.unpack

    def wrong(part, out, first=0):
        unpack(part, out, first)
        out.view(torch.int16)[-9] ^= 1

    monkeypatch.setattr(one_pass, "unpack", wrong)
    assert not select.agrees(device, torch.bfloat16)


def gradients() -> list[torch.Tensor]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with compressing() as session:
        for seed in range(8):
            train_step(model, optimizer, batch(seed))
    assert session.figures.violations == 0
    assert session.figures.compressed > 0
    return [weight.grad for weight in model.parameters()]


def test_training_with_copies_that_arrive_later_is_training_with_copies_at_once(monkeypatch):
    at_once = gradients()
    begun = []
    monkeypatch.setattr(later, "defers", lambda _: True)
    monkeypatch.setattr("kompakt_runtime.saved.entry.begin", lambda *what: begun.append(codec.begin(*what)) or begun[-1])
    assert all(map(torch.equal, at_once, gradients()))
    assert any(pending is not None and pending._counted is not None for pending in begun)
