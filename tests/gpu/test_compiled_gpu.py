"""Compiled graphs on a real NVIDIA GPU, with torch's own code generator behind them."""

import gc

import pytest
import torch
from torch import nn

from kompakt_runtime.compiled.operators import TICKETS
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


def chain(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.Linear(1024, 512), nn.Linear(512, 64)).to("cuda", dtype)


def convolutions(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1), nn.Conv2d(64, 32, 3, stride=2), nn.Conv2d(32, 16, 1))
    return layers.to("cuda", dtype).to(memory_format=torch.channels_last)


def trained(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    for step in range(6):
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(step)).to("cuda", dtype)
        optimizer.zero_grad()
        model(drawn).float().square().mean().backward()
        optimizer.step()
    return {name.removeprefix("_orig_mod."): weight.grad.float() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("make", "shape"), [(chain, (64, 32, 256)), (convolutions, (16, 16, 32, 32))], ids=["products", "convolutions"]
)
def test_gradients_are_within_their_bounds_and_nothing_stays(make, shape, dtype):
    plain = trained(torch.compile(make(dtype)), shape, dtype)
    torch._dynamo.reset()
    session = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0))
    session.start()
    try:
        ours = trained(torch.compile(make(dtype)), shape, dtype)
    finally:
        session.stop()
    errors = {name: float((ours[name] - plain[name]).norm() / plain[name].norm()) for name in plain}
    assert 0 < max(errors.values()) < 0.1, errors
    assert session.figures.compressed == 2 * 6
    assert session.figures.violations == 0 < session.figures.checked
    assert session.figures.saved_bytes < session.figures.plain_bytes
    gc.collect()
    assert len(TICKETS) == 0
