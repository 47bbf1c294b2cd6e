"""Where somebody uses a gradient of an activation, it is plain training's bit for bit, although bounded ones were asked for."""

from collections import UserDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from kompakt_runtime.compat.graph import held
from kompakt_runtime.scope.calls import wants_gradient
from tests.support.runtime.small_training import batch, double_backward, same, warm_up


class Named(nn.Module):
    """Takes its batch as models of texts do: among other things, by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3), nn.GELU(), nn.Flatten())
        self.head = nn.Linear(128, 4)

    def forward(self, x=None, *, inputs=None, scale=1.0):
        while isinstance(x, list | dict):
            x = x["x"] if isinstance(x, dict) else x[0]
        return self.head(self.body((inputs if x is None else x) * scale))


GIVEN = {
    "by place": lambda model, x: model(x),
    "by name": lambda model, x: model(inputs=x, scale=0.5),
    "in a list": lambda model, x: model([x, 3]),
    "in a dict in a list": lambda model, x: model([{"x": x}]),
}


def gelu_is_packed(session, model, how, x) -> bool:
    """Whether anything but the linear operands is packed, in a step with gradients for the input or without."""
    before = {name: row.saved for name, row in session.figures.layers.items()}
    model.zero_grad()
    GIVEN[how](model, x).square().sum().backward()
    return any(row.saved > before.get(name, 0) for name, row in session.figures.layers.items() if name.endswith("[gelu]"))


@pytest.mark.parametrize("how", GIVEN)
def test_a_forward_pass_on_a_leaf_that_wants_a_gradient_is_exact(running, how):
    model, session = Named(), running(activation_gradients="Bounded")
    warm_up(model, momentum=0.9)
    found = []
    for _ in range(2):
        x = batch(7).requires_grad_()
        model.zero_grad()
        GIVEN[how](model, x).square().sum().backward()
        found.append((x.grad, model.body[0].weight.grad.clone()))
        session.stop()
    (ours, weight), (plain, exact) = found
    assert torch.equal(ours, plain)
    assert not torch.equal(weight, exact), "linear operands are packed as ever"
    assert session.figures.raw["InputGradient"] == 1


@pytest.mark.parametrize("how", GIVEN)
def test_only_that_pass_is(running, how):
    model, session = Named(), running(activation_gradients="Bounded")
    warm_up(model, momentum=0.9)
    assert gelu_is_packed(session, model, how, batch(7))
    assert not gelu_is_packed(session, model, how, batch(8).requires_grad_())
    assert gelu_is_packed(session, model, how, batch(7))
    assert session.figures.raw["InputGradient"] == 1


def test_what_another_part_made_is_no_input(running):
    """A network in two parts that are called one by one has activations between them, not inputs."""
    model, session = Named(), running(activation_gradients="Bounded")
    warm_up(model, momentum=0.9)
    model.head(model.body(batch())).sum().backward()
    assert session.figures.raw["InputGradient"] == 0


@pytest.mark.parametrize("settings", [{"activation_gradients": "Exact"}, {"mode": "Lossless"}])
def test_where_all_passes_are_exact_none_is_counted(running, settings):
    model, session = Named(), running(**settings)
    model(batch().requires_grad_()).sum().backward()
    assert session.figures.raw["InputGradient"] == 0


@pytest.mark.parametrize(
    ("argument", "wants"),
    [
        (lambda: torch.ones(1, requires_grad=True), True),
        (lambda: torch.ones(1), False),
        (lambda: torch.ones(1, requires_grad=True) * 1, False),
        (lambda: UserDict(input_ids=torch.ones(1), inputs_embeds=torch.ones(1, requires_grad=True)), True),
        (lambda: ((), [{"a": (None, "text", torch.ones(1, requires_grad=True))}]), True),
        (lambda: (None, 3, "text", {}), False),
    ],
)
def test_a_leaf_is_found_among_arguments(argument, wants):
    assert wants_gradient(argument()) is wants


def test_gradients_of_gradients_are_told_and_make_later_passes_exact(running):
    model, session = Named(), running(activation_gradients="Bounded")
    warm_up(model, momentum=0.9)
    assert session.figures.raw["DoubleBackward"] == 0
    y = model(batch(5)).square().sum()
    slopes = torch.autograd.grad(y, model.body[0].weight, create_graph=True)
    slopes[0].square().sum().backward()
    assert session.figures.raw["DoubleBackward"] > 0
    assert not gelu_is_packed(session, model, "by place", batch(6))
    assert session.figures.raw["InputGradient"] == 0


def test_a_gradient_penalty_is_that_of_plain_training(running):
    model, session = Named(), running(activation_gradients="Bounded")
    warm_up(model, momentum=0.9)
    ours = double_backward(model, batch(9))
    assert session.figures.raw["InputGradient"] == 1
    session.stop()
    plain = double_backward(model, batch(9))
    assert torch.equal(ours["input"], plain["input"])
    assert same(ours, plain) or session.figures.raw["DoubleBackward"] > 0, "what is off is told"


def test_looking_at_what_a_node_holds_is_no_backward_pass(running):
    model, session = Named(), running(activation_gradients="Bounded")
    warm_up(model, momentum=0.9)
    y = model(batch(5))
    assert held(y.grad_fn, "mat1")[0].entry.bounded
    assert y.grad_fn._saved_mat1.shape == (8, 128)
    assert session.figures.raw["DoubleBackward"] == 0


class Recomputing(nn.Module):
    """A region is computed again in the backward pass, where it is the outermost module and gets leaves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.region = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 4, 3))

    def forward(self, x):
        return checkpoint(self.region, self.first(x), use_reentrant=True)


def test_a_recomputation_is_what_its_forward_pass_was(running):
    model, session = Recomputing(), running(activation_gradients="Bounded")
    warm_up(model, momentum=0.9)
    assert session.figures.raw["InputGradient"] == 0
    (row,) = (row for name, row in session.figures.layers.items() if name.endswith("[gelu]"))
    assert row.saved < row.plain / 2
    found = []
    for _ in range(2):
        x = batch(7).requires_grad_()
        model.zero_grad()
        model(x).square().sum().backward()
        found.append(x.grad)
        session.stop()
    assert torch.equal(*found)
    assert session.figures.raw["InputGradient"] == 1
