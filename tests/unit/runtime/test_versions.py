"""What was saved and changed afterwards raises exactly where it does in plain training; what is read twice is the same twice."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.runtime.small_training import Holder, batch, double_backward, failed, network, ours_and_plain, same, warm_up


def parts() -> nn.ModuleDict:
    torch.manual_seed(0)
    layers = {"conv": nn.Conv2d(3, 8, 3, padding=1), "second": nn.Conv2d(8, 8, 3, padding=1), "last": nn.Linear(6, 4)}
    return nn.ModuleDict({**layers, "batch": nn.BatchNorm2d(8), "layer": nn.LayerNorm(6), "gelu": nn.GELU()})


def attention_of_parts(model, x):
    qkv = x.flatten(2).view(8, 2, 4, 36)
    return F.scaled_dot_product_attention(qkv[:, 0:1], qkv[:, 1:], qkv[:, 1:])


def change_a_weight(model, _):
    with torch.no_grad():
        model["last"].weight.mul_(2)


def double(_, x):
    x.mul_(2)


# Of each tensor, what reads it and what changes it then; the tensor is the output of a ReLU or, for operations that are not
# linear, of a convolution. Where it is changed through an alias, the tensor itself is gone by then.
RAISES = [
    ("a compressed tensor", "relu", lambda model, x: model["second"](x), double),
    ("a compressed tensor through a view", "relu", lambda model, x: model["second"](x), lambda _, x: x.view(-1)[0].fill_(5)),
    ("a compressed tensor through an alias", "relu", lambda model, x: model["second"](x), "alias"),
    ("a tensor kept as it is", "sigmoid", lambda model, x: x * x, double),
    ("a weight", "relu", lambda model, x: model["last"](x), change_a_weight),
    ("input of a batch norm", "conv", lambda model, x: model["batch"](x), double),
    ("input of a layer norm through an alias", "conv", lambda model, x: model["layer"](x), "alias"),
    ("one element of the input of GELU", "conv", lambda model, x: model["gelu"](x), lambda _, x: x.view(-1)[3].fill_(1)),
    ("input of a function", "conv", lambda model, x: F.gelu(x), lambda _, x: x.zero_()),
    ("keys of attention", "conv", attention_of_parts, lambda _, x: x.detach().flatten(2).view(8, 2, 4, 36)[:, 1].mul_(2)),
    ("output of attention", "conv", lambda model, x: F.scaled_dot_product_attention(x, x, x).mul_(2), lambda *_: None),
]
ALLOWED = [
    ("an input before it is saved", "conv", lambda model, x: model["layer"](x.mul_(2)), lambda *_: None),
    ("a copy of an input", "conv", lambda model, x: model["gelu"](x), lambda _, x: x.clone().mul_(2)),
    (
        "outputs of norms and GELU", "conv",
        lambda model, x: model["gelu"](model["layer"](model["batch"](x).mul_(2)).add_(1)).mul_(3), lambda *_: None,
    ),
]  # fmt: skip
MAKE = {"conv": lambda x: x, "relu": torch.relu, "sigmoid": torch.sigmoid}
ROWS = [pytest.param(raises, *row, id=name) for raises, rows in ((True, RAISES), (False, ALLOWED)) for name, *row in rows]


@pytest.mark.parametrize("settings", [None, {}, {"activation_gradients": "Bounded"}], ids=["plain", "linear", "nonlinear"])
@pytest.mark.parametrize(("raises", "made", "read", "change"), ROWS)
def test_changes_in_place_raise_exactly_where_they_do_in_plain_training(running, raises, made, read, change, settings):
    def use(model, x):
        kept = [MAKE[made](model["conv"](x))]
        if change != "alias":
            return read(model, kept[0]), change(model, kept[0])
        alias, out = kept[0].detach(), read(model, kept.pop())
        return out, alias.add_(1)

    model = Holder(parts(), lambda model, x: use(model, x)[0])
    session = None if settings is None else running(**settings)
    for _ in range(2):  # measured steps, then one with bounds
        loss = model(batch().requires_grad_() * 1).square().sum()  # no leaf: those have exact gradients in any case
        if raises:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()
        for site in session.sites._sites.values() if session else ():
            site.observing = False
        for operation in (session and session.hooks.operations) or ():
            operation.bound = operation.bound or 0.01
    assert not session or not failed(session)


def test_in_place_relus_are_no_misuse(running):
    model, session = network(inplace=True), running()
    warm_up(model)
    session.figures.forget()
    ours, plain = ours_and_plain(model, session)
    assert torch.equal(ours["0.weight"], plain["0.weight"])
    assert session.figures.compressed == 2


def test_a_later_operation_that_reads_the_values_brings_the_original_back(running):
    def both(model, x):
        hidden = model[:2](x)
        return model[2](hidden) * hidden

    model, session = network(), running()
    warm_up(model)
    assert same(*ours_and_plain(Holder(model[:5], both), session))


def test_unpacking_again_gives_the_same(running):
    model = network()
    running()
    warm_up(model)
    loss = model(batch()).square().sum()
    first, second = (torch.autograd.grad(loss, list(model.parameters()), retain_graph=again) for again in (True, False))
    assert all(map(torch.equal, first, second))


def test_double_backward_works(running):
    model = network()
    running()
    warm_up(model)
    assert all(gradient.isfinite().all() for gradient in double_backward(model, batch()).values())


def test_double_backward_of_lossless_copies_is_that_of_plain_training(running):
    plain = double_backward(network(), batch())
    session = running(mode="Lossless")
    assert same(double_backward(network(), batch()), plain)
    assert session.figures.forwards == 1
