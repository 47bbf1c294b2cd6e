"""Saved tensors that are computed again in the backward pass, from what is kept for other operations anyway."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kompakt_runtime.hooks.deriving import Deriving
from kompakt_runtime.saved.operators import OPERATORS, Operator
from tests.support.runtime.derived_training import PARTS, ROWS, WIDE, batch, derived, trained, weights
from tests.support.runtime.small_training import Holder, failed


def gelu(own, x):
    return F.gelu(x @ own["a"]) @ own["b"]


def by_tanh(own, x):
    return F.gelu(x @ own["a"], approximate="tanh") @ own["b"]


def silu(own, x):
    return F.silu(x @ own["a"]) @ own["b"]


def gated(own, x):
    return (F.silu(x @ own["a"]) * (x @ own["b"])) @ own["c"]


def norm(own, x):
    return F.layer_norm(x @ own["a"], (WIDE,), own["scale"], own["shift"]) @ own["b"]


def over_silu(own, x):
    return F.silu(x @ own["a"], inplace=True) @ own["b"]


def over_hardswish(own, x):
    return F.hardswish(x @ own["a"], inplace=True) @ own["b"]


def mish(own, x):
    return F.mish(x @ own["a"]) @ own["b"]


FUNCTIONS = {function.__name__: function for function in (gelu, by_tanh, silu, over_silu, over_hardswish, mish, gated, norm)}


def warmed(function) -> nn.Module:
    """A model whose bounds are measured, after a pass of which sources know what is asked for."""
    model = Holder(weights(**PARTS), function)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        model(batch().requires_grad_() * 1).square().sum().backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_result_is_computed_again_within_what_its_reader_asked_for(running, kind):
    session = running(activation_gradients="Bounded", verify=True)
    ours, plain = trained(FUNCTIONS[kind], session)
    assert derived(session), session.figures.layers
    own = 2 * 4 * WIDE if kind == "norm" else 0  # scale and shift, of each step
    assert all(saved == plain // (4 * ROWS * WIDE) * own for plain, saved in derived(session).values())
    assert session.figures.violations == 0 < session.figures.checked
    for name, gradient in plain.items():
        assert float((ours[name] - gradient).norm()) < 0.1 * float(gradient.norm()), name
    assert not failed(session)


@pytest.mark.parametrize("kind", ["gelu", "by_tanh", "silu", "over_silu", "over_hardswish", "mish", "gated"])
@pytest.mark.parametrize("mode", ["Lossless", "ErrorBounded"])
def test_from_exact_sources_it_comes_back_bit_for_bit(running, kind, mode):
    session = running(mode=mode, activation_gradients="Exact")
    ours, plain = trained(FUNCTIONS[kind], session)
    assert derived(session)
    exact = plain if mode == "Lossless" else {"x"}
    assert all(torch.equal(ours[name], plain[name]) for name in exact)
    assert not failed(session)


def test_a_norm_is_not_derived_where_every_bit_counts(running):
    """It runs again by another formula."""
    session = running(mode="Lossless")
    ours, plain = trained(norm, session)
    assert not derived(session)
    assert not session.figures.raw["DerivedDiffers"], "nobody tries"
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_graph_may_be_read_twice(running, kind):
    session = running(activation_gradients="Bounded")
    model = warmed(FUNCTIONS[kind])
    session.figures.layers.clear()
    out = model(batch().requires_grad_() * 1).square().sum()
    read = [weight for name, weight in model.named_parameters() if name[-1] in "ab"]
    first = torch.autograd.grad(out, read, retain_graph=True)
    second = torch.autograd.grad(out, read)
    assert derived(session)
    assert all(map(torch.equal, first, second))
    assert not failed(session)


def test_what_was_derived_may_be_saved_once_more(running):
    """Three projections of a norm's result, as in attention: the first is known before the others save it."""

    def three(own, x):
        y = F.layer_norm(x @ own["a"], (WIDE,), own["scale"], own["shift"])
        return (y @ own["b"]).exp() + (y @ own["c"]).sin() + y @ own["b"]

    session = running(activation_gradients="Bounded", verify=True)
    ours, plain = trained(three, session)
    assert derived(session)
    assert session.figures.violations == 0
    assert all(float((ours[name] - plain[name]).norm()) < 0.1 * float(plain[name].norm()) for name in plain)


def test_what_is_derived_bit_for_bit_serves_one_more_layer(running):
    """The second product comes when the result is no longer there."""

    def twice(own, x):
        y = F.silu(x @ own["a"])
        return F.silu(y @ own["b"]) + y @ own["c"]

    session = running(mode="Lossless")
    ours, plain = trained(twice, session)
    assert derived(session)
    assert torch.equal(ours["x"], plain["x"])
    assert not failed(session)


@pytest.mark.parametrize("asked", ["Exact", "Bounded"])
def test_a_source_that_was_changed_is_told_as_plain_autograd_tells_it(running, asked):
    def changed(own, x):
        h = x @ own["a"]
        y = F.gelu(h) @ own["b"]
        own.spoilt = h  # type: ignore[attr-defined]
        return y

    def message() -> str:
        model = Holder(weights(**PARTS), changed)
        out = model(batch().requires_grad_() * 1)
        with torch.no_grad():
            model.model.spoilt.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as told:
            out.sum().backward()
        return str(told.value)

    session = running(activation_gradients=asked)
    ours = message()
    session.stop()
    assert not failed(session)
    assert ours.split(":")[0] == message().split(":")[0]


def test_a_source_that_was_changed_before_is_not_derived_from(running):
    def changed(own, x):
        h = x @ own["a"]
        y = F.gelu(h)
        with torch.no_grad():
            h.zero_()
        return y @ own["b"]

    session = running(activation_gradients="Exact")
    model = Holder(weights(**PARTS), changed)
    out = model(batch().requires_grad_() * 1)
    (ours,) = torch.autograd.grad(out.sum(), model.model["b"])
    session.stop()
    (plain,) = torch.autograd.grad(model(batch().requires_grad_() * 1).sum(), model.model["b"])
    assert not derived(session)
    assert not session.figures.raw["DerivedDiffers"], "nobody tries"
    assert not failed(session)
    assert float((ours - plain).norm()) < 0.1 * float(plain.norm())


@pytest.mark.parametrize("asked", ["Exact", "Bounded"])
def test_from_a_changed_source_comes_an_error_and_from_its_copy_the_result(running, asked):
    """Where the gradient that is asked for does not need the source itself."""

    def leaving(own, x):
        own.source = x @ own["a"]  # type: ignore[attr-defined]
        return F.gelu(own.source) @ own["b"]

    session = running(activation_gradients=asked)
    model = Holder(weights(**PARTS), leaving)
    out = model(batch().requires_grad_() * 1).square().sum()
    (before,) = torch.autograd.grad(out, model.model["b"], retain_graph=True)
    with torch.no_grad():
        model.model.source.zero_()
    if asked == "Bounded":
        assert torch.equal(torch.autograd.grad(out, model.model["b"])[0], before)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(out, model.model["b"])
    assert derived(session)


def test_a_result_that_was_changed_is_not_the_operations_any_more(running):
    def changed(own, x):
        h = F.gelu(x @ own["a"])
        with torch.no_grad():
            h.mul_(2)
        return h @ own["b"]

    session = running(activation_gradients="Exact")
    ours, plain = trained(changed, session)
    assert not derived(session)
    assert not session.figures.raw["DerivedDiffers"], "nobody tries"
    assert torch.equal(ours["x"], plain["x"])


def test_what_an_operation_in_place_gave_is_compared_each_time(running):
    """Changed without autograd's knowledge it looks the same but for its numbers."""
    changes = []

    def changed(own, x):
        h = F.silu(x @ own["a"], inplace=True)
        if changes:
            with torch.no_grad():
                h.mul_(2)
        return h @ own["b"]

    session = running(mode="Lossless")
    model = Holder(weights(**PARTS), changed)
    model(batch().requires_grad_() * 1).square().sum().backward()
    assert derived(session)
    changes.append(1)
    out = model(batch().requires_grad_() * 1).square().sum()
    (ours,) = torch.autograd.grad(out, model.model["b"])
    session.stop()
    out = model(batch().requires_grad_() * 1).square().sum()
    assert torch.equal(ours, torch.autograd.grad(out, model.model["b"])[0])


def test_parameters_may_be_stepped_before_the_backward_pass_reads_the_result(running):
    """Plain autograd does not read a norm's scale for the gradient of what comes behind it."""
    session = running(activation_gradients="Bounded")
    model = Holder(weights(**PARTS), norm)
    out = model(batch().requires_grad_() * 1).square().sum()
    (plain,) = torch.autograd.grad(out, model.model["b"], retain_graph=True)
    with torch.no_grad():
        model.model["scale"].mul_(7)
    (ours,) = torch.autograd.grad(out, model.model["b"])
    assert derived(session)
    assert torch.equal(ours, plain)


def narrow(session, shift: float) -> dict[str, tuple[int, int]]:
    """A norm of which everything is bfloat16, its statistics too: steps that move nothing, and what is computed again of it."""
    model = Holder(weights(**PARTS), norm).bfloat16()
    with torch.no_grad():
        model.model["shift"].fill_(shift)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        model(batch().bfloat16().requires_grad_() * 1).square().sum().backward()
        optimizer.step()
    return derived(session)


def test_a_norm_that_rounds_its_statistics_is_derived_with_a_rounding_more(running):
    session = running(activation_gradients="Bounded", verify=True, target=0.1)
    assert narrow(session, shift=0.0)
    assert not session.figures.raw["DerivedDiffers"]
    assert session.figures.violations == 0


def test_a_shift_hides_what_the_rounded_scale_does_to_small_results(running):
    """The error is a share of what the norm gave before the shift, which may be far more than the result."""
    session = running(activation_gradients="Bounded", verify=True, target=0.1)
    narrow(session, shift=-0.3)
    assert not session.figures.raw["DerivedDiffers"]
    assert session.figures.violations == 0


def test_sources_are_not_kept_tighter_for_a_result_that_did_not_come_back_as_it_was(running, monkeypatch):
    wrong = Operator(("self",), lambda sources, _: sources[0] * 0.9, lambda _: (1.0999,), steady=True)
    monkeypatch.setitem(OPERATORS, "SiluBackward0", wrong)
    session = running(activation_gradients="Bounded")
    model = warmed(silu)
    assert session.figures.raw["DerivedDiffers"] > 0
    (operation,) = session.hooks.operations
    assert operation.bound is not None, model
    assert not session.hooks._actions.deriving._wishes._by((operation, "self"))


def test_a_result_of_which_a_sign_is_read_keeps_a_copy_with_signs(running):
    def signs(own, x):
        y = F.silu(x @ own["a"])
        return F.leaky_relu(y) @ own["b"] + y @ own["c"]

    session = running(activation_gradients="Bounded", verify=True)
    trained(signs, session)
    assert not any("c [derived]" in name for name in derived(session))
    assert session.figures.violations == 0


def test_what_does_not_come_back_as_it_was_is_kept_and_counted(running, monkeypatch):
    """An operator that gives other numbers on this machine, or is not the one that ran."""
    wrong = Operator(("self",), lambda sources, _: sources[0] * 0.9, lambda _: (1.0999,), steady=True)
    monkeypatch.setitem(OPERATORS, "SiluBackward0", wrong)
    session = running(mode="Lossless")
    ours, plain = trained(silu, session)
    assert session.figures.raw["DerivedDiffers"] > 0
    assert not derived(session)
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_it_is_looked_at_again_on_measured_steps(running, monkeypatch):
    """The operator may be replaced meanwhile, or a flag may change what it computes."""
    session = running(mode="Lossless")
    trained_steps = []

    def changing(own, x):
        trained_steps.append(1)
        if len(trained_steps) == 3:
            wrong = Operator(("self",), lambda sources, _: sources[0] * 0.9, lambda _: (1.0999,), steady=True)
            monkeypatch.setitem(OPERATORS, "SiluBackward0", wrong)
        return silu(own, x)

    trained(changing, session)
    assert session.figures.raw["DerivedDiffers"] > 0


def test_a_source_is_kept_tighter_for_the_sake_of_a_result_from_the_next_step_on(running):
    """Only then does the result need nothing: in the step itself it is kept as without all this."""
    session = running(activation_gradients="Bounded")
    model = Holder(weights(**PARTS), gelu)
    x = batch()

    def passed() -> tuple[float, bool]:
        before = copy.copy(derived(session))
        model(x.clone().requires_grad_() * 1).sum().backward()
        operation = next(one for one in session.hooks.operations if one.name.endswith("[gelu]"))
        return session.figures.layer(operation.name).saved, derived(session) != before

    passed()
    for site in session.sites:
        site.bound, site.observing = 0.01, False
    for operation in session.hooks.operations:
        operation.bound, operation.observing = 0.02, False
    session.figures.layers.clear()
    session.figures.steps = 100  # no measured step
    wide, at_once = passed()
    tight, then = passed()
    assert (at_once, then) == (False, True)
    assert wide < tight - wide, "bytes of the source alone, by step"


def test_a_source_is_not_kept_so_tight_that_it_costs_more_than_the_result(running):
    session = running(activation_gradients="Bounded")
    model = Holder(weights(**PARTS), gelu)
    model(batch().requires_grad_() * 1).sum().backward()
    for site in session.sites:
        site.bound, site.observing = 1e-6, False
        site.bound = 0.3 if site.name.endswith("b") else 0.01
    for operation in session.hooks.operations:
        operation.bound, operation.observing = 300.0, False
    session.figures.layers.clear()
    session.figures.steps = 100
    for _ in range(3):
        model(batch().requires_grad_() * 1).sum().backward()
    assert not derived(session)


def test_what_is_not_finite_comes_back_in_place(running):
    """An overflow, as with a loss scale: nothing was wrong with the operator."""

    def overflowing(own, x):
        h = x @ own["a"]
        return F.silu(h + torch.zeros_like(h).index_fill_(0, torch.tensor([0]), torch.inf)) @ own["b"]

    session = running(activation_gradients="Bounded", verify=True)
    trained(overflowing, session, steps=0)
    assert derived(session)
    assert session.figures.raw["DerivedDiffers"] == session.figures.violations == 0


def test_a_failure_costs_the_gain_alone(running, monkeypatch):
    monkeypatch.setattr(Deriving, "_agreed", lambda *_: 1 / 0)
    session = running(activation_gradients="Bounded")
    ours, plain = trained(gelu, session)
    assert failed(session) == ["DeriveFailedZeroDivisionError"]
    assert all(float((ours[name] - plain[name]).norm()) < 0.1 * float(plain[name].norm()) for name in plain)
