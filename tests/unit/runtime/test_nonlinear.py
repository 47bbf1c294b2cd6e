"""Inputs of nonlinear operations, packed where that is asked for: how far errors reach is measured and kept to its share."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.bounds.layer import GROWTH, first_nonlinear_bound, nonlinear_bound
from kompakt_runtime.bounds.nonlinear import Operations, layer_target
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.config import SiteOverride
from kompakt_runtime.hooks.deriving import Deriving
from tests.support.runtime.small_training import Holder, batch, gradients, ours_and_plain, same, warm_up
from tests.support.runtime.small_training import network as relu_network


def network(norm: type[nn.Module] = nn.BatchNorm2d, act: type[nn.Module] = nn.GELU) -> nn.Sequential:
    torch.manual_seed(0)
    norms = [nn.GroupNorm(2, 8) if norm is nn.GroupNorm else norm(6 if norm is nn.LayerNorm else 8) for _ in range(2)]
    layers = [nn.Conv2d(3, 8, 3, padding=1), norms[0], act(), nn.Conv2d(8, 8, 3, padding=1), norms[1], act()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 36, 4))


class Attention(nn.Module):
    """One head beside a residual path, then the functional forms of GELU and LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = self.qkv(x.flatten(1, 2)).view(len(x), 1, 18, 3, 6).unbind(3)
        mixed = F.scaled_dot_product_attention(q, k, v)
        y = x + self.out(mixed.reshape(x.shape))
        return F.layer_norm(F.gelu(y), (6,))


def rows(session, kind: str) -> dict:
    return {name: row for name, row in session.figures.layers.items() if name.endswith(f"[{kind}]")}


class Narrow(nn.Module):
    """Its hyperbolic tangents are so small that noise as wide as first bounds is lost in the rounding of gradients."""

    def __init__(self, last: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(36, 36, bias=False, dtype=torch.bfloat16), nn.Linear(36, 4, dtype=torch.bfloat16)
        with torch.no_grad():
            self.first.weight.mul_(0.002)
            self.last.weight.mul_(last)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x.flatten(2).to(torch.bfloat16)))).float()


def test_what_noise_does_not_move_may_be_packed_wider_next_time(running):
    model, session = Narrow(last=1.0), running(activation_gradients="Bounded")
    warm_up(model, steps=6, momentum=0.9)
    (row,) = rows(session, "tanh").values()
    assert row.bound, "after one measured step"
    (tanh,) = [one for one in session.hooks.operations if one.name.endswith("[tanh]")]
    assert tanh.bound


def test_where_there_is_no_gradient_nothing_is_learnt_from_noise(running):
    """As behind weights that begin as zero."""
    model, session = Narrow(last=0.0), running(activation_gradients="Bounded")
    warm_up(model, steps=1, momentum=0.9)
    (tanh,) = [one for one in session.hooks.operations if one.name.endswith("[tanh]")]
    assert tanh.bound is None


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm])
def test_inputs_of_norms_are_packed_within_bounds_of_their_own(running, norm):
    model, session = network(norm), running(activation_gradients="Bounded")
    warm_up(model, steps=3, momentum=0.9)
    found = rows(session, "norm")
    assert found.keys() == {"1 [norm]", "4 [norm]"}
    assert all(row.saved < row.plain / 2 and 0 < row.error <= row.bound for row in found.values())
    assert session.figures.violations == 0 < session.figures.checked


def test_a_norm_on_the_raw_batch_is_judged_by_its_weight_alone(running):
    """No gradient goes on from there, so none can be off."""
    torch.manual_seed(0)
    layers = [nn.BatchNorm2d(3, momentum=0.0), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 4)]
    model, session = nn.Sequential(*layers), running(activation_gradients="Bounded")
    warm_up(model, steps=6, momentum=0.9)
    (row,) = rows(session, "norm").values()
    assert 0 < row.sigma < 2
    assert session.figures.raw["NoBound"] == 0, "although it runs before a layer is known that could be measured"
    found = []
    for _ in range(2):
        model.zero_grad()
        model(batch(6)).square().sum().backward()
        found.append(model[0].weight.grad.clone())
        session.stop()
    ours, plain = found
    assert 0 < (ours - plain).abs().mean() < 0.1 * plain.abs().mean()


def test_functional_forms_are_found_behind_the_module_around_them(running):
    torch.manual_seed(0)
    model, session = nn.Sequential(Attention(), nn.Flatten(), nn.Linear(108, 4)), running(activation_gradients="Bounded")
    warm_up(model, steps=3, momentum=0.9)
    for kind in ("attention key query value", "gelu", "norm"):
        (row,) = rows(session, kind).values()
        assert row.saved < row.plain / 1.5, kind
        assert 0 < row.sigma < math.inf
    assert session.figures.violations == 0


class WrittenNorm(nn.Module):
    """A norm by the root mean square as transformers writes it: its factor, one for each row, is expanded."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def test_the_gradient_of_a_factor_that_was_expanded_is_judged_as_it_goes_on(running):
    """Its backward function gives one gradient for each element; autograd hands on their sums."""
    torch.manual_seed(0)
    layers = [nn.Linear(32, 32), WrittenNorm(), nn.Linear(32, 8)]
    model, session = nn.Sequential(nn.Flatten(), nn.Linear(108, 32), *layers), running(activation_gradients="Bounded")
    warm_up(model, steps=6, momentum=0.9)
    for kind in ("mul self", "pow"):
        (operation,) = (each for each in session.hooks.operations if each.name.endswith(f"[{kind}]"))
        assert operation.bound > 1e-4, kind
        assert 0.2 < session.figures.layers[operation.name].sigma < 5


class Head(nn.Module):
    """Queries, keys and values in storages of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(
            *(part(x.flatten(2, 3).transpose(1, 2).contiguous())[:, None] for part in self.parts)
        )


def test_each_operand_of_attention_has_a_bound_of_its_own(running):
    """Values that hardly differ from place to place bear far smaller errors than queries."""
    torch.manual_seed(0)
    model, session = (
        nn.Sequential(nn.Conv2d(3, 6, 1), Head(), nn.Flatten(), nn.Linear(216, 4)),
        running(activation_gradients="Bounded"),
    )
    with torch.no_grad():
        model[1].parts[2].weight.mul_(0.02)
        model[1].parts[2].bias.fill_(1.0)
    warm_up(model, steps=9, momentum=0.9)
    bounds = {each.name.split()[-1]: each.bound for each in session.hooks.operations if "attention" in each.name}
    assert bounds.keys() == {"query]", "key]", "value]", "output]"}
    assert bounds["query]"] > 4 * bounds["value]"]


def test_a_bound_stays_below_what_numbers_differ_by(running):
    """Else all of them would be off by the same, which no noise shows."""
    torch.manual_seed(0)
    session = running(activation_gradients="Bounded")
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.Dropout(0.3), nn.GELU(), nn.Flatten(), nn.Linear(216, 4))
    with torch.no_grad():
        model[0].weight.mul_(1e-4)
        model[0].bias.fill_(1.0)
    warm_up(model, steps=9, momentum=0.9)
    (operation,) = session.hooks.operations
    assert 0 < operation.bound <= float(model[0](batch()).detach().std())


@pytest.mark.parametrize("settings", [{"activation_gradients": "Exact"}, {"mode": "Lossless"}])
def test_exact_gradients_need_exact_inputs(running, settings):
    model, session = network(), running(**settings)
    warm_up(model)
    ours, plain = ours_and_plain(model, session)
    assert not rows(session, "norm")
    assert not rows(session, "gelu")
    assert all(torch.equal(ours[name], plain[name]) for name in ("input", "1.weight", "4.bias"))


@pytest.mark.parametrize("pattern", ["class:BatchNorm2d", "[14]"])
def test_a_class_or_a_name_may_be_left_out(running, pattern):
    model, session = network(), running(activation_gradients="Bounded", overrides=(SiteOverride(pattern, "None"),))
    warm_up(model)
    assert not rows(session, "norm")
    assert rows(session, "gelu").keys() == {"2 [gelu]", "5 [gelu]"}


def test_activation_gradients_stay_within_what_the_layers_bear(running):
    """The measured error of the input's gradient, from all operations at once, against the smallest share that a layer bears."""
    model, session = network(), running(activation_gradients="Bounded")
    warm_up(model, steps=9, momentum=0.9)
    bears = max(share for _, share in session.sites.tolerances())
    ours, plain = (found["input"] for found in ours_and_plain(model, session, batch(8), leaf=False))
    moved = float((ours - plain).norm() / plain.norm())
    assert 0 < moved < 2 * bears


def test_what_noise_does_is_what_packing_does(running, monkeypatch):
    """`sigma` of an operation is measured with noise of our own; here with the error of the true copy, which nothing else is
    computed from: that would make its bound tighter.
    """
    monkeypatch.setattr(Deriving, "within", lambda *_: False)
    torch.manual_seed(0)
    model, session = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), running(activation_gradients="Bounded")
    x = torch.randn(512, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()

    step()
    optimizer.step()
    (operation,) = session.hooks.operations
    taken = []
    see = operation.see
    operation.see = lambda node, exact, noisy: (taken.append((exact[0], noisy[0])), see(node, exact, noisy))
    step()
    ((packed, noisy),) = taken
    session.stop()
    plain = []
    model[1].register_forward_pre_hook(lambda _, arguments: arguments[0].register_hook(plain.append) and None)
    step()
    true, ours = float((packed - plain[0]).norm()), float((noisy - packed).norm())
    assert 0.8 < ours / true < 1.25


def test_measuring_moves_no_random_numbers_and_no_gradient(running):
    model = network()
    session = running(activation_gradients="Bounded")
    torch.manual_seed(5)
    first = gradients(model, batch(), leaf=False)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    for operation in session.hooks.operations:
        operation.observing = False
    session.hooks.operations.watch = lambda *_: None
    assert same(first, gradients(model, batch(), leaf=False))


def test_a_tensor_that_a_layer_and_a_norm_save_has_the_tighter_bound(running):
    torch.manual_seed(0)

    def both(model, x):
        x = x * 2
        return model[0](x.flatten(1)) + model[1](x).flatten(1)

    model = Holder(nn.ModuleList([nn.Linear(108, 108), nn.LayerNorm(6)]), both)
    session = running(activation_gradients="Bounded")
    warm_up(model)
    (operation,) = session.hooks.operations
    site = session.sites.of(model.model[0])
    site.bound, site.observing = 0.5, False
    asked = []
    compress = session.hooks.ledger.later.compress

    def noted(entry, t, bound, *arguments, **settings):
        asked.append(bound)
        return compress(entry, t, bound, *arguments, **settings)

    session.hooks.ledger.later.compress = noted
    for mine, tighter in ((0.125, 0.125), (1.0, 0.5)):
        operation.bound = mine
        asked.clear()
        gradients(model, batch(), leaf=False)
        assert asked[-1] == tighter


def test_an_overflow_leaves_bounds_as_they_are(running):
    model, session = network(), running(activation_gradients="Bounded")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for scale in (1.0, math.inf):
        optimizer.zero_grad()
        (model(batch()).square().sum() * scale).backward()
        if scale == math.inf:
            before = {operation.name: operation.bound for operation in session.hooks.operations}
            for weight in model.parameters():
                weight.grad.zero_()
        optimizer.step()
    assert all(before.values())
    assert before == {operation.name: operation.bound for operation in session.hooks.operations}
    assert all(operation.moved is None for operation in session.hooks.operations), "what was seen must not stay"


def test_a_backward_pass_keeps_no_copy_longer_than_it_reads_it(running):
    model, session = network(), running(activation_gradients="Bounded")
    out = model(batch())
    entries = [entry for entry in session.hooks.ledger._entries.values() if entry.layer.endswith("norm]")]
    assert len(entries) == 2
    out.square().sum().backward()
    del entries
    assert not [entry for entry in session.hooks.ledger._entries.values() if entry.layer.endswith("norm]")]


def test_a_bound_follows_what_was_measured_and_grows_step_by_step():
    assert nonlinear_bound(0.1, 2.0, 1.0) == pytest.approx(0.05)
    assert nonlinear_bound(0.01, 0.01, 1.0) == pytest.approx(0.01 * GROWTH)
    assert nonlinear_bound(0.1, 0.01, 0.3) == 0.3
    assert nonlinear_bound(0.01, 0.0, 1.0) == pytest.approx(0.01 * GROWTH), "noise of this size did nothing at all"
    for moved in (math.nan, math.inf):
        assert nonlinear_bound(0.1, moved, 1.0) is None
    assert first_nonlinear_bound(0.0, 0.01, 4) is None
    wide = first_nonlinear_bound(5.0, 0.01, 4)
    assert first_nonlinear_bound(2.0, 0.01, 4) == pytest.approx(wide), "absolute errors where inputs are wide"


@pytest.mark.parametrize(
    ("model", "share"),
    [(network, 0.5**0.5), (relu_network, 1.0)],
    ids=["beside nonlinear operations", "of a network without any"],
)
def test_what_linear_layers_may_do_alone(running, model, share):
    bounds = {}
    for kind in ("Exact", "Bounded"):
        session, trained = running(activation_gradients=kind), model()
        warm_up(trained, steps=2)
        bounds[kind] = {site.name: site.bound for site in session.sites}
        session.stop()
    for name, exact in bounds["Exact"].items():
        assert bounds["Bounded"][name] == pytest.approx(share * exact, rel=0.1), name


def test_in_the_first_step_nobody_knows_whether_there_are_nonlinear_operations():
    operations = Operations(Sites(lambda *_: "ErrorBounded", str), str)
    assert layer_target(0.02, None, 0) == layer_target(0.02, operations, 1) == 0.02
    assert layer_target(0.02, operations, 0) == pytest.approx(0.02 * 0.5**0.5)
