"""Host memory on a real NVIDIA GPU: bytes come back, nothing waits, memory is let go of, and training is plain training."""

import functools

import pytest
import torch
from torch import nn

from kompakt_runtime import codec
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.offload.schedule import Offloading
from kompakt_runtime.saved.carrier import Carrier
from kompakt_runtime.saved.lane import CudaLane
from kompakt_runtime.session import Session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
MEGABYTE = 1 << 20


@pytest.fixture
def carrier():
    return Carrier(CudaLane(torch.device("cuda", torch.cuda.current_device())), 1 << 30)


def busy(milliseconds: float = 50) -> None:
    """Something for the stream that computes; the host goes on at once."""
    torch.cuda._sleep(int(milliseconds * 1e6))


def test_bytes_come_back_while_memory_is_used_again(carrier):
    wanted = [torch.randn(5 * MEGABYTE // 4 + 3, device="cuda") for _ in range(6)]
    kept = []
    for x in wanted:
        busy(5)
        kept.append(carrier.out(x.clone())[0])  # whose memory is free for others from here on, but for the carrier
        carrier.release(2)
        torch.full_like(x, -1)
    for hosted, x in reversed(list(zip(kept, wanted, strict=True))):
        hosted.arrival = carrier.back(hosted)
        assert torch.equal(hosted.decode(), x)


def test_nothing_makes_the_host_wait(carrier):
    x = torch.randn(4 * MEGABYTE, device="cuda")
    carrier.out(x)[0].decode()  # pins memory once
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        busy(200)
        hosted, mark = carrier.out(x)
        carrier.release(0)
        hosted.arrival = carrier.back(hosted)
        again = hosted.decode()
        assert not mark.over(), "the copy comes after what the stream was given before"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(again, x)
    assert mark.seconds() > 0


def test_who_writes_after_reading_back_comes_after_the_copy(carrier):
    x = torch.randn(16 * MEGABYTE, device="cuda")
    hosted, _ = carrier.out(x)
    hosted.arrival = carrier.back(hosted)
    again = hosted.decode().add_(1)
    assert torch.equal(again, x + 1)


def test_packed_copies_come_back(carrier):
    x = torch.randn(3 * MEGABYTE, device="cuda").relu()
    packed = codec.encode(x, 0.05)
    assert torch.equal(codec.decode(packed), carrier.out(packed)[0].decode())


def test_a_backward_pass_on_another_stream(carrier):
    x = torch.randn(MEGABYTE, device="cuda")
    hosted, _ = carrier.out(x)
    hosted.arrival = carrier.back(hosted)
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        again = hosted.decode()
    other.synchronize()
    assert torch.equal(again, x)
    assert carrier.late == 1


def train(session: Session | None) -> tuple[list[torch.Tensor], int]:
    """Weights after twelve steps, and the peak of the last four."""
    torch.manual_seed(0)
    blocks = [part for _ in range(8) for part in (nn.Linear(2048, 2048), nn.GELU(), nn.LayerNorm(2048))]
    model = nn.Sequential(*blocks).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if session is not None:
        session.start()
    for step in range(12):
        if step == 8:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        model(torch.randn(8192, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    if session is not None:
        session.stop()
    return [weight.detach().clone() for weight in model.parameters()], torch.cuda.max_memory_allocated()


def test_training_is_plain_training_with_less_memory():
    carriers = functools.partial(Carrier, budget=4 << 30)
    session = Session(RuntimeConfig("Lossless", offload="Auto"), offloading=functools.partial(Offloading, carriers=carriers))
    plain, before = train(None)
    ours, after = train(session)
    away = session.figures.away
    print(f"{torch.cuda.get_device_name()}: peak {before} -> {after} bytes; {away.said()}")
    assert all(map(torch.equal, ours, plain))
    assert away.tensors > 0
    assert after < before
