"""The codec on a real NVIDIA GPU: the kernels' bytes are the reference's, and training code never waits for sizes."""

import pytest
import torch

from kompakt_runtime import codec
from kompakt_runtime.codec import select, tiles
from kompakt_runtime.codec.grid import make_grid

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def sample(dtype, kind: str, count: int = 300_001):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, generator=generator, dtype=torch.float64)
    if kind == "relu":
        x = x.relu()
    if kind == "edges":
        x = torch.randint(-200, 200, (count,), generator=generator).double() * 0.05
    x = x.to(dtype)
    if kind == "any bits":
        wide = torch.randint(-(1 << 15), (1 << 15) - 1, (count,), generator=generator)
        bits = (wide << 16).to(torch.int32) if dtype == torch.float32 else wide.to(torch.int16)
        x[::20] = bits.view(dtype)[::20]
    return x


@pytest.fixture(scope="module")
def kernels():
    works = select.encoder(torch.device("cuda", 0), torch.float32)
    if works.name != "triton":
        pytest.skip(f"the kernels do not work here: {works.reason}")
    return works


@pytest.mark.parametrize("seed", [None, 9])
@pytest.mark.parametrize("kind", ["dense", "relu", "edges", "any bits"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_on_the_gpu_are_those_on_the_cpu(kernels, dtype, kind, seed):
    x = sample(dtype, kind)
    wanted = codec.encode(x, 0.05, seed=seed)
    ours = codec.encode(x.cuda(), 0.05, seed=seed)
    assert ours.raw == wanted.raw
    assert ours.to_bytes() == wanted.to_bytes()
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(codec.decode(ours).cpu().view(bits), codec.decode(wanted).view(bits))
    print(f"byte-identical on {torch.cuda.get_device_name()}: {dtype}, {kind}, seed {seed}, {len(wanted.to_bytes())} bytes")


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_plain_operations_on_the_gpu_write_the_same_bytes(dtype):
    x = sample(dtype, "relu")
    grid = make_grid(dtype, 0.05, False)
    wanted, _ = tiles.encode_part(x, grid, None, 0)
    ours, _ = tiles.encode_part(x.cuda(), grid, None, 0)
    for name in ("bitmap", "table", "heads", "words", "places", "kept"):
        assert torch.equal(getattr(ours, name).cpu(), getattr(wanted, name)), name


def test_packing_with_room_and_unpacking_never_synchronise(kernels):
    x = sample(torch.float32, "relu").cuda()
    whole = codec.encode(x, 0.05)
    room = codec.Room.of(whole.sizes, x.numel())
    codec.begin(x, 0.05, room).settle()  # what is set up once
    torch.cuda.set_sync_debug_mode("error")
    try:
        pending = codec.begin(x, 0.05, room)
        again = codec.decode(whole)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    packed, _ = pending.settle()
    assert packed.to_bytes() == whole.to_bytes()
    assert (again - x).abs().max() <= 0.05
