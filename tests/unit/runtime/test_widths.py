"""Bounds of batch norms' inputs, which count in what each channel deviates by."""

import math

import pytest
import torch
from torch import nn

from kompakt_runtime.bounds.widths import Widths, noise
from kompakt_runtime.codec import decode, encode
from tests.support.runtime.small_training import batch, warm_up

SIZES = (30.0, 0.001, 1.0, 4.0, 0.2, 1e-9)


def inputs(layout: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    torch.manual_seed(0)
    return (torch.randn(16, len(SIZES), 12, 12) * torch.tensor(SIZES).view(1, -1, 1, 1) + 0.5).to(memory_format=layout)


def deviations(x: torch.Tensor) -> torch.Tensor:
    return (x.var((0, 2, 3), correction=0) + 1e-5).sqrt()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_errors_of_each_channel_are_the_same_share_of_what_it_deviates_by(layout):
    x = inputs(layout)
    asked = Widths(deviations(x), torch.ones(len(SIZES))).asked(x, 0.05)
    assert asked.channels is not None
    back = decode(encode(x, asked.widest, channels=asked.channels))
    shares = (back - x).abs().amax((0, 2, 3)) / deviations(x)
    assert shares.max() <= 0.05 * math.sqrt(2)
    assert shares.min() >= 0.05 / math.sqrt(2) * 0.5  # the narrowest channel has few numbers
    assert noise(asked, x).view(-1) == pytest.approx(0.05 * deviations(x), rel=0.42)


@pytest.mark.parametrize("x", [inputs()[:, 2:4], inputs().half()], ids=["a part of a storage", "float16"])
def test_where_channels_have_no_bounds_of_their_own_one_does_as_much_to_all_together(x):
    wide = deviations(x.float())
    asked = Widths(wide, torch.ones_like(wide)).asked(x, 0.05)
    assert (asked.channels, noise(asked, x)) == (None, asked.bound)
    assert float((asked.bound / wide).square().mean().sqrt()) == pytest.approx(0.05)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_behind_the_norm_errors_are_no_larger_than_wanted_and_hardly_smaller(layout):
    x, weight = inputs(layout), torch.tensor([1.0, -3.0, 0.01, 1.5, 0.7, 1.0])
    asked = Widths(deviations(x), weight).behind(x, 0.05)
    assert asked.channels is not None
    back = decode(encode(x, asked.widest, channels=asked.channels))
    behind = (back - x).abs().amax((0, 2, 3)) / deviations(x) * weight.abs()
    assert behind.max() <= 0.05
    assert behind[:-1].min() >= 0.05 / 2 * 0.5, "all numbers of the last channel are one"
    assert float(asked.bound * (weight.abs() / deviations(x)).max()) == pytest.approx(0.05), "one bound for all keeps it too"


def test_a_norm_that_multiplies_by_zero_bears_any_error():
    x = inputs()
    asked = Widths(deviations(x), torch.zeros(len(SIZES))).behind(x, 0.05)
    assert 1e6 < asked.bound < math.inf


def test_a_bound_follows_a_channel_that_becomes_narrow_between_measured_steps(running):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6 * 36, 4))
    session = running(activation_gradients="Bounded")
    warm_up(model, steps=9, momentum=0.9)
    (operation,) = (one for one in session.hooks.operations if one.name.endswith("[norm]"))
    assert 0 < operation.bound <= 0.5, "in deviations"
    with torch.no_grad():
        model[0].weight[0] *= 1e-3
    ours = narrowest(model)
    session.stop()
    plain = narrowest(model)
    assert 0 < float((ours - plain).norm()) < 0.1 * float(plain.norm())


def narrowest(model: nn.Sequential) -> torch.Tensor:
    """The gradient of the first channel's weight when nothing else counts."""
    model.zero_grad()
    model[1](model[0](batch()))[:, 0].pow(3).sum().backward()
    return model[0].weight.grad[0].clone()
