"""The Triton kernels against the reference, in Triton's interpreter: run by test_codec_kernels.py in a process of its own,
because triton decides once, when it is imported, whether it interprets.
"""

import pytest
import torch

from kompakt_runtime.codec import kernels, select, tiles
from kompakt_runtime.codec.grid import make_grid

torch.set_num_threads(1)
# numpy, which stands in for the GPU here, warns of NaN and infinity.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SECTIONS = ("bitmap", "table", "heads", "words", "places", "kept")


def bits_of(x: torch.Tensor) -> torch.Tensor:
    return x.view(kernels.BITS[x.dtype]) if x.is_floating_point() else x  # type: ignore[attr-defined]


def sample(dtype: torch.dtype, kind: str, count: int = 2500) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, generator=generator, dtype=torch.float64)
    if kind == "relu":
        x = x.relu()
    if kind == "edges":
        x = torch.randint(-200, 200, (count,), generator=generator).double() * 0.05
    if kind == "empty tile":
        x[2048:4096] = 0
    x = x.to(dtype)
    if kind == "awkward":
        patterns = torch.randint(-(1 << 15), (1 << 15) - 1, (count // 8,), generator=generator)
        wide = patterns << 16 if dtype.itemsize == 4 else patterns
        x[: 8 * patterns.numel() : 8] = wide.to(kernels.BITS[dtype]).view(dtype)  # type: ignore[attr-defined]
    return x


CASES = [
    (kind, bound, None) for kind, bound in [("dense", 3e-5), ("relu", 0.1), ("edges", 0.1), ("empty tile", 0.5), ("awkward", 0.1)]
]


@pytest.mark.parametrize(("kind", "bound", "seed"), [*CASES, ("awkward", 0.1, 1 << 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_write_the_bytes_of_the_reference_and_read_them(dtype, kind, bound, seed):
    x = sample(dtype, kind)
    grid = make_grid(dtype, bound, seed is not None)
    wanted, truth = tiles.encode_part(x, grid, seed, 1 << 33)
    ours, counted = kernels.encode_part(x, grid, seed, 1 << 33)
    assert torch.equal(truth, counted)
    assert (ours.bitmap is None) == (wanted.bitmap is None)
    for name in SECTIONS:
        if getattr(wanted, name) is not None:
            assert torch.equal(bits_of(getattr(ours, name)), bits_of(getattr(wanted, name))), f"{name} at bound {bound}"
    out, reference = torch.empty_like(x), torch.empty_like(x)
    kernels.decode_part(ours, grid, out)
    tiles.decode_part(wanted, grid, reference)
    assert torch.equal(bits_of(out), bits_of(reference))


# From less than the spacing of any number of the type to more than its largest, with the edges of every rule between.
SHORT_BOUNDS = [1e-9, 4e-7, 2.0**-9, 0.03, 0.11, 7.0, 250.0, 1e30]


@pytest.mark.parametrize("bound", SHORT_BOUNDS)
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_all_numbers_of_a_short_type_at_any_bound(dtype, bound):
    x = torch.arange(1 << 15, dtype=torch.int64).to(torch.int16).view(dtype)
    grid = make_grid(dtype, bound, False)
    wanted, truth = tiles.encode_part(x, grid, None, 0)
    ours, counted = kernels.encode_part(x, grid, None, 0)
    assert torch.equal(truth, counted)
    assert all(torch.equal(bits_of(getattr(ours, name)), bits_of(getattr(wanted, name))) for name in SECTIONS)
    out, reference = torch.empty_like(x), torch.empty_like(x)
    kernels.decode_part(ours, grid, out)
    tiles.decode_part(wanted, grid, reference)
    assert torch.equal(bits_of(out), bits_of(reference))


@pytest.mark.parametrize("count", [1, 31, 2047, 2048, 2049])
def test_odd_lengths(count):
    x = sample(torch.float32, "relu", count)
    grid = make_grid(x.dtype, 0.1, False)
    wanted, _ = tiles.encode_part(x, grid, None, 0)
    ours, _ = kernels.encode_part(x, grid, None, 0)
    assert all(torch.equal(getattr(ours, name), getattr(wanted, name)) for name in SECTIONS if getattr(wanted, name) is not None)
    out = torch.empty_like(x)
    kernels.decode_part(ours, grid, out)
    assert (out - x).abs().max() <= 0.1


@pytest.mark.parametrize("short", ["blocks", "words", "outliers"])
def test_too_little_room_is_told_and_nothing_is_written_beyond_it(short, monkeypatch):
    x = sample(torch.float32, "awkward")
    grid = make_grid(x.dtype, 0.1, False)
    whole, truth = tiles.encode_part(x, grid, None, 0)
    names = ("nonzero", "blocks", "words", "outliers")
    room = tiles.Sizes(**{name: getattr(whole.sizes, name) // (2 if name == short else 1) for name in names})
    part, counted = with_guards(monkeypatch, lambda: kernels.encode_part(x, grid, None, 0, room))
    assert torch.equal(counted, truth)
    kept = {"blocks": "heads", "words": "words", "outliers": "places"}[short]
    length = getattr(room, short)
    assert torch.equal(getattr(part, kept)[:length], getattr(whole, kept)[:length])


def with_guards(monkeypatch, action):
    """Runs with every buffer lying between guard elements; out-of-range stores are silent otherwise."""
    guarded = []
    empty = torch.empty

    def fenced(size, **options):
        wide = empty(size + 128, **options).fill_(77)
        guarded.append(wide)
        return wide[64 : 64 + size]

    with monkeypatch.context() as patch:
        patch.setattr(kernels.torch, "empty", fenced)  # type: ignore[attr-defined]
        result = action()
    assert guarded
    for wide in guarded:
        assert (wide[:64] == 77).all()
        assert (wide[-64:] == 77).all()
    return result


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_comparison_before_use_passes(dtype):
    assert select.same_bytes(kernels, torch.device("cpu"), dtype)
