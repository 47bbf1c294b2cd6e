"""Which coordinates of a weight's gradient the errors of a packed operand are in."""

import math

import pytest
import torch
from torch.nn import functional as F

from kompakt_runtime.bounds.layer import LayerObservation
from kompakt_runtime.bounds.sigma import Met, contraction
from kompakt_runtime.bounds.spread import ByChannel, Spread
from kompakt_runtime.bounds.sums import Sums

SIDE = 12  # as many channels as features: shapes do not tell which is which


def node_of(out, name: str):
    node = out.grad_fn
    while node.name() != name:
        node = node.next_functions[0][0]
    return node


WAYS = {
    "module": (lambda x, w: F.linear(x, w, torch.zeros(SIDE)), "AddmmBackward0", "mat1", (4000, SIDE), (SIDE, SIDE)),
    "rows": (lambda x, w: x @ w, "MmBackward0", "self", (4000, SIDE), (SIDE, SIDE)),
    "rows, turned": (lambda x, w: x @ w.T, "MmBackward0", "self", (4000, SIDE), (SIDE, SIDE)),
    "columns": (lambda x, w: w @ x, "MmBackward0", "mat2", (SIDE, 4000), (SIDE, SIDE)),
    "columns, turned": (lambda x, w: w.T @ x, "MmBackward0", "mat2", (SIDE, 4000), (SIDE, SIDE)),
    "1x1": (F.conv2d, "ConvolutionBackward0", "input", (40, SIDE, 10, 10), (SIDE, SIDE, 1, 1)),
    "3x3": (lambda x, w: F.conv2d(x, w, padding=1), "ConvolutionBackward0", "input", (40, SIDE, 10, 10), (SIDE, SIDE, 3, 3)),
}


def along(shape, at: int):
    """Sizes that differ by up to a hundred along one dimension."""
    return torch.logspace(-1, 1, shape[at]).view([-1 if dim == at else 1 for dim in range(len(shape))])


@pytest.mark.parametrize("way", WAYS)
def test_errors_are_where_channels_have_large_gradients_and_features_have_few_zeros(way):
    operation, name, slot, shape, of_weight = WAYS[way]
    at = 0 if way.startswith("columns") else 1
    luck = torch.Generator().manual_seed(0)
    x = torch.rand(shape, generator=luck) * (torch.rand(shape, generator=luck) < along(shape, at) / 10)
    weight = torch.randn(of_weight, generator=luck, requires_grad=True)
    out = operation(x.requires_grad_(), weight)
    delta = torch.randn(out.shape, generator=luck) * along(out.shape, at)
    how, seen = contraction(node_of(out, name), slot, x.shape, weight), ByChannel()
    for part in (x, x):  # micro-batches
        seen.add_input(part.detach(), how)
        seen.add_delta(delta, how)
    squares = torch.zeros(of_weight)
    for _ in range(8):
        error = (torch.rand(shape, generator=luck) - 0.5) * (x != 0)
        squares += torch.autograd.grad(operation(error, weight), weight, delta)[0].square()
    weights = torch.rand(of_weight, generator=luck) * along(of_weight, 0) * along(of_weight, 1).square()
    wanted = float((squares * weights).sum() / squares.sum())
    assert float(seen.spread.mean(weights)) == pytest.approx(wanted, rel=0.25)
    assert float(weights.mean()) != pytest.approx(wanted, rel=0.5)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_that_meet_only_zeros_carry_no_error(way):
    """Behind an empty background, say: there gradients are a hundred times as large, and would count for all the others."""
    operation, name, slot, shape, of_weight = WAYS[way]
    at = 0 if way.startswith("columns") else 1
    luck = torch.Generator().manual_seed(0)
    weight = torch.randn(of_weight, generator=luck, requires_grad=True)
    x = torch.rand(shape, generator=luck).requires_grad_()
    out = operation(x, weight)
    empty = torch.arange(out.shape[1 - at]).ge(out.shape[1 - at] // 2)
    by_place = [-1 if dim == 1 - at else 1 for dim in range(len(shape))]
    with torch.no_grad():
        x *= ~empty.view(by_place)
    delta = torch.randn(out.shape, generator=luck) * torch.where(empty, 100.0, 1.0).view(by_place)
    how, seen = contraction(node_of(out, name), slot, x.shape, weight), Sums()
    seen.add_input(x.detach(), how)
    seen.add_delta(delta, how.outputs(delta), Met.of(how, x.detach()))
    error = (torch.rand(shape, generator=luck) * 2 - 1) * (x.detach() != 0)
    moved = torch.autograd.grad(operation(error, weight), weight, delta)[0]
    seen.gradient = moved.abs().mean()
    figures = LayerObservation(*seen.figures(None, None).tolist())
    assert float(moved.square().mean().sqrt()) == pytest.approx(math.sqrt(figures.delta_squares / 3), rel=0.25)


@pytest.mark.parametrize("options", [{"stride": 2}, {"padding": 2, "dilation": 2}, {"groups": 2}, {"padding": "same"}])
def test_the_share_of_nonzero_elements_is_that_under_each_place_of_the_kernel(options):
    x = (torch.rand(3, 4, 9, 7) < 0.3).float().requires_grad_()
    weight = torch.rand(4, 4 // options.get("groups", 1), 3, 3, requires_grad=True)
    out = F.conv2d(x, weight, **options)
    found = contraction(node_of(out, "ConvolutionBackward0"), "input", x.shape, weight).nonzero(x.detach())
    ones = torch.ones(1, 4, 3, 3) / 36
    wanted = F.conv2d(x.detach(), ones, **{name: value for name, value in options.items() if name != "groups"})
    assert torch.allclose(found, wanted, atol=1e-6)
    assert found.shape[2:] == out.shape[2:]


@pytest.mark.parametrize("name", ["transposed", "vector"])
def test_where_nobody_wrote_down_what_meets_where_nothing_is_told(name):
    x, weight = torch.rand(2, 3, 5, 5, requires_grad=True), torch.rand(3, 4, 3, 3, requires_grad=True)
    out, slot = F.conv_transpose2d(x, weight), "input"
    if name == "vector":
        x, weight, slot = torch.rand(5, requires_grad=True), torch.rand(4, 5, requires_grad=True), "vec"
        out = weight.mv(x)
    assert contraction(out.grad_fn, slot, x.shape, weight).nonzero(x.detach()) is None


def test_a_parameter_that_is_used_in_two_ways_has_errors_spread_evenly():
    x, weight = torch.rand(64, SIDE, requires_grad=True), torch.randn(SIDE, SIDE, requires_grad=True)
    seen = ByChannel()
    for out in (x @ weight, x @ weight.T):
        how = contraction(out.grad_fn, "self", x.shape, weight)
        seen.add_input(x.detach(), how)
        seen.add_delta(torch.rand(64, SIDE), how)
    assert seen.spread == Spread()


def test_one_ranks_part_of_a_parameter_has_errors_spread_evenly():
    t = torch.rand(4, 6)
    assert Spread(0, torch.rand(8), torch.rand(6)).mean(t) == t.mean()


def test_of_a_grouped_convolution_only_channels_count():
    t = torch.rand(4, 1, 3, 3)
    assert Spread(0, torch.tensor([0.0, 0.0, 1.0, 0.0]), torch.rand(4)).mean(t) == pytest.approx(float(t[2].mean()))


def test_gradients_that_were_thrown_away_leave_no_channel():
    x, weight = torch.rand(64, SIDE, requires_grad=True), torch.randn(SIDE, SIDE, requires_grad=True)
    how, seen = contraction((x @ weight).grad_fn, "self", x.shape, weight), ByChannel()
    seen.add_input(x.detach(), how)
    seen.add_delta(torch.rand(64, SIDE), how)
    seen.keep_backward(torch.tensor(False))
    seen.add_delta(torch.eye(64, SIDE), how)
    assert torch.equal(seen.spread.rows, torch.ones(SIDE))
