"""What was saved and changed afterwards raises as in plain training; what is read twice is the same twice."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.support.runtime.small_training import Holder, batch, gradients, network, same, warm_up

MISUSES: dict[str, Callable[[nn.Sequential, torch.Tensor], torch.Tensor]] = {}


def misuse(function):
    MISUSES[function.__name__] = function
    return function


@misuse
def change_a_compressed_tensor(model, x):
    hidden = model[:2](x)
    out = model[2](hidden)
    hidden.mul_(2)
    return out


@misuse
def change_it_through_a_view(model, x):
    hidden = model[:2](x)
    out = model[2](hidden)
    hidden.view(-1)[0] = 5
    return out


@misuse
def change_it_through_a_detached_alias(model, x):
    hidden = model[:2](x)
    alias = hidden.detach()
    out = model[2](hidden)
    del hidden
    alias.add_(1)
    return out


@misuse
def change_a_tensor_kept_as_it_is(model, x):
    hidden = model[0](x).sigmoid()
    out = hidden * hidden
    hidden.mul_(2)
    return out


@misuse
def change_a_weight(model, x):
    out = model(x.requires_grad_())
    with torch.no_grad():
        model[5].weight.mul_(2)
    return out


@pytest.mark.parametrize("name", MISUSES)
@pytest.mark.parametrize("on", [False, True])
def test_in_place_misuse_raises_as_in_plain_training(running, name, on):
    model = network()
    if on:
        running()
    warm_up(model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Holder(model, MISUSES[name])(batch()).sum().backward()


def test_in_place_relus_are_no_misuse(running):
    model, session = network(inplace=True), running()
    warm_up(model)
    session.figures.forget()
    ours = gradients(model, batch())
    session.stop()
    assert torch.equal(ours["0.weight"], gradients(model, batch())["0.weight"])
    assert session.figures.compressed == 2


def test_a_later_operation_that_reads_the_values_brings_the_original_back(running):
    def both(model, x):
        hidden = model[:2](x)
        return model[2](hidden) * hidden

    model = network()
    session = running()
    warm_up(model)
    whole = Holder(model[:5], both)
    ours = gradients(whole, batch())
    session.stop()
    assert same(ours, gradients(whole, batch()))


def test_unpacking_again_gives_the_same(running):
    model = network()
    running()
    warm_up(model)
    loss = model(batch()).square().sum()
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_double_backward_works(running):
    model = network()
    running()
    warm_up(model)
    x = batch().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_double_backward_of_lossless_copies_is_that_of_plain_training(running):
    def slopes() -> dict[str, torch.Tensor]:
        model = network()
        x = batch().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        slope.square().sum().backward()
        return {"input": x.grad, **{name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}}

    plain = slopes()
    session = running(mode="Lossless")
    assert same(slopes(), plain)
    assert session.figures.forwards == 1
