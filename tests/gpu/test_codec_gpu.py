"""The codec on a real NVIDIA GPU: what comes back is what plain torch operations say, and training code never waits for sizes."""

import pytest
import torch

from kompakt_runtime import codec
from kompakt_runtime.codec import one_pass, select
from kompakt_runtime.codec.one_pass_reference import expected
from kompakt_runtime.compat.streams import stream_on
from tests.support.runtime.tensors import same_bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def sample(dtype: torch.dtype, kind: str, count: int = 300_001) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, generator=generator, dtype=torch.float64)
    if kind == "relu":
        x = x.relu()
    if kind == "planted":
        x[::97] *= 100
    x = x.to(dtype)
    if kind == "any bits":
        bits = torch.randint(-(1 << 15), (1 << 15) - 1, (count,), generator=generator)
        wide = (bits << 16).to(torch.int32) if dtype.itemsize == 4 else bits.to(torch.int16)
        x[::20] = wide.view(dtype)[::20]
    return x


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_work_here(dtype):
    works = select.encoder(torch.device("cuda", 0), dtype)
    assert (works.name, works.reason) == ("triton", "")


def test_a_streams_number_is_the_one_that_torch_tells():
    device = torch.device("cuda", torch.cuda.current_device())
    for stream in (torch.cuda.current_stream(device), torch.cuda.Stream(device)):
        with torch.cuda.stream(stream):
            assert stream_on(device) == torch.cuda.current_stream(device).cuda_stream


@pytest.mark.parametrize("bound", [0.05, 0.002])
@pytest.mark.parametrize("kind", ["normal", "relu", "planted", "any bits"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_comes_back_is_what_the_reference_says(dtype, kind, bound):
    x = sample(dtype, kind)
    wanted, widths = expected(x, bound)
    part = select.packed_whole(x.cuda(), bound)
    out = torch.empty_like(x, device="cuda")
    one_pass.unpack(part, out)
    assert one_pass.widths(part).tolist() == widths
    assert same_bits(out.cpu(), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049])
def test_any_number_of_elements(dtype, count):
    x = sample(dtype, "normal", count)
    assert same_bits(codec.decode(codec.encode(x.cuda(), 0.125)).cpu(), expected(x, 0.125)[0])


def test_a_tensor_on_a_device_that_is_not_current():
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    x = sample(torch.bfloat16, "normal").to("cuda:1")
    assert (codec.decode(codec.encode(x, 0.05)) - x).abs().max() <= 0.05


def test_a_tensor_of_more_bytes_than_31_bits_count():
    x = torch.randn(1 << 28, device="cuda").repeat(5)  # 5 GiB
    packed = codec.encode(x, 0.1)
    worst = max(float((piece - x[start : start + piece.numel()]).abs().max()) for start, piece in codec.pieces(packed))
    assert worst <= 0.1
    assert packed.nbytes < x.nbytes / 4


def test_packing_with_room_and_unpacking_never_synchronise():
    x = sample(torch.float32, "relu").cuda()
    whole = codec.encode(x, 0.05)
    room = codec.Room.of(whole)
    codec.begin(x, 0.05, room).settle()  # what is set up once
    torch.cuda.set_sync_debug_mode("error")
    try:
        pending = codec.begin(x, 0.05, room)
        again = codec.decode(whole)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    packed, _ = pending.settle()
    assert torch.equal(codec.decode(packed), again)
    assert (again - x).abs().max() <= 0.05


def test_packing_is_two_launches_and_unpacking_one():
    x = sample(torch.bfloat16, "normal").cuda()
    whole = codec.encode(x, 0.05)
    codec.begin(x, 0.05, codec.Room.of(whole)).settle()
    assert launches(lambda: codec.begin(x, 0.05, codec.Room.of(whole))) == 2
    assert launches(lambda: codec.decode(whole)) == 1


def launches(action) -> int:
    """Kernels and fills of memory that the device ran for it; copies to the host do not count."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        action()
        torch.cuda.synchronize()
    names = [event.name for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum("Memcpy" not in name for name in names)


def test_float64_passes_through():
    x = sample(torch.float64, "normal").cuda()
    assert codec.encode(x, 0.1).raw
    assert torch.equal(codec.decode(codec.encode(x, 0.1)), x)
