"""Bounds by channel: each element within its channel's, wherever the channel lies in memory."""

import pytest
import torch

from kompakt_runtime.codec import Channels, decode, encode, pieces

BOUND = 0.25


def planted(shape, along: int, dtype):
    """Every eighth channel a hundred times larger than the others; and how much tighter those others' bounds are."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    large = torch.arange(shape[along]) % 8 == 0
    sizes = torch.where(large, 100.0, 1.0).view([-1 if dim == along else 1 for dim in range(len(shape))])
    return (x * sizes).to(dtype), torch.where(large, 0, 5).to(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "along", "format_"), [
    ((3000, 64), 1, torch.contiguous_format),
    ((64, 3000), 0, torch.contiguous_format),
    ((4, 64, 30, 30), 1, torch.contiguous_format),
    ((4, 64, 30, 30), 1, torch.channels_last),
])  # fmt: skip
def test_each_channel_keeps_its_own_bound(dtype, shape, along, format_):
    x, depths = planted(shape, along, dtype)
    x = x.contiguous(memory_format=format_)
    packed = encode(x, BOUND, channels=Channels(depths, x.stride(along)))
    back, error = decode(packed), None
    error = (back.double() - x.double()).abs().movedim(along, 0).flatten(1).amax(1)
    assert not packed.raw
    assert len(packed.parts) > 1
    assert (error <= BOUND * 2.0 ** -depths.double()).all()
    assert (error > 0.5 * BOUND * 2.0 ** -depths.double()).all(), "no channel is packed finer than it must be"
    assert torch.equal((back > 0), (x > 0))
    assert torch.equal((back == 0), (x == 0))
    flat = torch.cat([piece for _, piece in pieces(packed)])
    assert torch.equal(flat, back.as_strided((x.numel(),), (1,)))


def test_a_few_large_channels_cost_the_others_no_bits():
    x, depths = planted((3000, 64), 1, torch.float32)
    one = encode(x, BOUND / 2**5)
    assert encode(x, BOUND, channels=Channels(depths, 1)).nbytes < 0.7 * one.nbytes


def test_numbers_that_would_overflow_are_kept_as_they_are():
    x, depths = planted((3000, 64), 1, torch.float32)
    x[5, 1] = 3e38
    packed = encode(x, BOUND, channels=Channels(depths, 1))
    assert packed.raw
    assert torch.equal(decode(packed), x)


def test_infinity_nan_and_zero_come_back():
    x, depths = planted((3000, 64), 1, torch.float32)
    x[0, :3] = torch.tensor([torch.inf, torch.nan, 0.0])
    back = decode(encode(x, BOUND, channels=Channels(depths, 1)))
    assert back[0, 0] == torch.inf
    assert back[0, 1].isnan()
    assert back[0, 2] == 0


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, BOUND), (torch.float32, 1e-35)])
def test_where_factors_could_leave_the_types_numbers_there_are_none(dtype, bound):
    x, depths = planted((3000, 64), 1, dtype)
    with pytest.raises(NotImplementedError):
        encode(x, bound, channels=Channels(depths, 1))


def test_there_is_no_format_for_them_outside_of_the_process():
    x, depths = planted((3000, 64), 1, torch.float32)
    with pytest.raises(TypeError, match="bounds of their own"):
        encode(x, BOUND, channels=Channels(depths, 1)).to_bytes()
