"""Parameters whose gradients are made where an operation's input is read: all are waited for, the least tolerant decides."""

import math

import pytest
import torch
from torch import nn

from kompakt_runtime.bounds.nonlinear import Operation


@pytest.fixture
def norm() -> nn.LayerNorm:
    norm = nn.LayerNorm(4)
    for weight in norm.parameters():
        weight.grad = torch.ones(4)
    return norm


@pytest.fixture
def operation(norm) -> Operation:
    """Seen in one pass: noise moved the weight's gradient by 10 %, the bias' by 30 %."""
    operation = Operation("norm", 0, norm)
    operation.see_input(torch.randn(32, 4, generator=torch.Generator().manual_seed(0)), 0.1)
    see(operation, norm, 0.1, 0.3)
    return operation


def see(operation, norm, *moved: float) -> None:
    gradient = torch.tensor([2.0, -2.0, 2.0, 2.0])
    leaves = [(weight, gradient, gradient * (1 + by)) for weight, by in zip(norm.parameters(), moved, strict=True)]
    operation.see_again([], leaves, [])


def test_the_largest_error_counts_when_all_were_stepped(norm, operation):
    first, second = (torch.optim.SGD([weight], lr=0.1) for weight in norm.parameters())
    operation.allow(1.0)
    weight, bias = operation.weights
    assert [weight.stepped_weight(), bias.stepped_weight()] == [norm.weight, norm.bias]
    weight.stepped(first, 1.0)
    assert operation.figures() is None, "the bias was not stepped yet"
    bias.stepped(second, 2.0)
    own, *_ = operation.figures().tolist()
    assert own == pytest.approx(0.3 / 2, rel=1e-5)


def test_a_parameter_that_nobody_steps_is_judged_by_its_gradient(norm, operation):
    operation.allow(1.0)
    operation.weights[0].stepped(torch.optim.SGD([norm.weight], lr=0.1), 1.0)
    assert operation.figures() is None
    operation.allow(1.0)  # linear layers were stepped twice since
    own, *_ = operation.figures().tolist()
    assert own == pytest.approx(0.3, rel=1e-5)


def test_a_gradient_of_zeros_hides_no_other(norm, operation):
    """Nothing moves it, so its error is no number."""
    operation.finish()
    operation.see_input(torch.randn(32, 4), 0.1)
    zeros = torch.zeros(4)
    operation.see_again([], [(norm.weight, zeros, zeros), (norm.bias, torch.ones(4), torch.full((4,), 1.2))], [])
    operation.allow(1.0)
    for one in operation.weights:
        one.judge(1.0)
    assert math.isnan(float(operation.weights[0].error))
    own, *_ = operation.figures().tolist()
    assert own == pytest.approx(0.2, rel=1e-5)


def test_passes_add_up_until_gradients_are_dropped(norm, operation):
    see(operation, norm, 0.1, 0.3)
    weight = operation.weights[0]
    assert torch.equal(weight.gradient.abs(), torch.full((4,), 4.0))
    norm.weight.grad = None
    see(operation, norm, 0.1, 0.3)
    assert torch.equal(weight.gradient.abs(), torch.full((4,), 2.0))


def test_what_was_seen_ends_with_the_step(norm, operation):
    assert operation.seen
    operation.finish()
    assert not operation.seen
    assert not any(one.waits for one in operation.weights)
