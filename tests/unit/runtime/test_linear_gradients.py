"""What a linear operation holds in its backward function before its weight's gradient is made: the allocator's own events."""

import pytest
import torch
from torch import nn
from torch.profiler import profile

from kompakt_runtime.cost import headroom
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.uses.policy import Use

INPUTS = {
    "rows": lambda: torch.randn(300, 96),
    "batches of rows": lambda: torch.randn(4, 75, 96),
    "columns, which are copied": lambda: torch.randn(4, 96, 75).transpose(1, 2),
}


def levels(action) -> tuple[list[int], list[int]]:
    """Each allocation or release, and what was held after it."""
    with profile(profile_memory=True) as recorded:
        action()
    sizes = [event.nbytes() for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    return sizes, [sum(sizes[: i + 1]) for i in range(len(sizes))]


def peak_and_before(x, bias: bool, cast: bool, spread: bool) -> tuple[int, int, int]:
    """Bytes of the weight's gradient, of the backward pass' peak, and of the highest moment before that gradient is made."""
    layer = nn.Linear(96, 160, bias=bias).to(x.dtype)
    with torch.autocast("cpu", enabled=cast):
        y = layer(x.requires_grad_())
    delta = torch.ones((), dtype=y.dtype).expand(y.shape) if spread else torch.randn_like(y)
    sizes, held = levels(lambda: y.backward(delta))
    own = layer.weight.numel() * layer.weight.element_size()
    made = max(place for place, size in enumerate(sizes) if size == own)
    return own, max(held), max(held[:made], default=0)


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", INPUTS)
def test_all_before_a_linear_layers_gradient_is_made_is_lower_by_as_much(kind, bias, dtype, spread):
    own, peak, before = peak_and_before(INPUTS[kind]().to(dtype), bias, cast=False, spread=spread)
    assert before <= peak - own


@pytest.mark.parametrize(("dtype", "counted"), [(torch.float32, True), (torch.bfloat16, False), (torch.float16, False)], ids=str)
def test_of_16_bits_it_is_not_relied_on_for_not_all_processors_do_that(monkeypatch, dtype, counted):
    """Those without bfloat16 instructions have a float32 copy of another gradient before it."""
    monkeypatch.setattr(headroom, "COUNTED", 1 << 30)
    layer, watcher = nn.Linear(96, 160).to(dtype), headroom.Headroom(Figures())
    x = INPUTS["rows"]().to(dtype)
    watcher.entered(layer, (x,))
    layer(x).sum().backward()
    watcher.unpacked(Use.WEIGHT_GRADIENT, dtype)
    assert watcher._made == (layer.weight.nbytes if counted else 0)


def test_of_another_type_it_is_made_after_the_peak():
    """So it must not be counted there; the input that is read has the type of the operation."""
    own, peak, before = peak_and_before(INPUTS["rows"](), bias=True, cast=True, spread=False)
    assert before > peak - own
