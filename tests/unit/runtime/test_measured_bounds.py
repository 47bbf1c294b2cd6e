"""Where bounds come from: statistics of real steps, whatever the loop around them does."""

import random
import statistics
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.bounds.layer import LayerObservation, sigma_ratio
from kompakt_runtime.bounds.sigma import contraction
from kompakt_runtime.codec import decode, encode
from kompakt_runtime.config import SiteOverride
from kompakt_runtime.saved.compare import SAMPLE, sample_error
from kompakt_runtime.saved.entry import whole_storage
from tests.support.runtime.small_training import batch, gradients, network, train_step, warm_up


def bounds_after(running, **options) -> dict[str, float]:
    session = running()
    warm_up(network(), **options)
    session.stop()
    return {site.name: site.bound for site in session.sites._sites.values()}


def test_the_bound_does_not_move_with_the_loss_scale(running):
    plain = bounds_after(running, momentum=0.9)
    assert bounds_after(running, momentum=0.9, scale=1024.0) == pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_other_optimizers_give_bounds_too(running, optimizer):
    assert all(0 < bound < 1 for bound in bounds_after(running, optimizer_class=optimizer).values())


def test_layers_are_packed_from_the_first_step_on_and_well_within_the_target(running):
    model, session = network(), running()
    warm_up(model, steps=1, momentum=0.9)
    assert session.figures.layers.keys() >= {"2", "5"}
    firsts = {name: row.first for name, row in session.figures.layers.items()}
    assert all(0 < first < 1 for first in firsts.values()), firsts
    assert all(site.bound for site in session.sites._sites.values())


def test_an_input_that_is_the_same_everywhere_is_kept_until_its_layer_was_measured(running):
    model, session = nn.Linear(8, 4), running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ones = torch.ones(16, 8, requires_grad=True)
    model(ones * 1).square().sum().backward()
    assert session.figures.raw["NoBound"] == 1
    optimizer.step()
    model(ones * 1).square().sum().backward()
    assert session.figures.layers["Linear"].bound > 0


def bounds_of(running, optimizer_class, **options) -> dict[str, float]:
    """After nine steps, none of which moves a weight: each optimizer saw the same gradients."""
    model, session = network(), running()
    optimizer = optimizer_class(model.parameters(), lr=0.0, **options)
    for step in range(9):
        train_step(model, optimizer, batch(step))
    session.stop()
    return {name: session.sites.of(model.get_submodule(name)).bound for name in ("2", "5")}


class Mean(torch.optim.Optimizer):
    """Keeps the fading mean of gradients and nothing else, as Lion does."""

    def __init__(self, weights, lr, betas):
        super().__init__(weights, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("exp_avg", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - group["betas"][0])


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_one_target_means_the_same_for_a_momentum_kept_as_a_sum_and_as_a_mean(running, beta):
    summed = bounds_of(running, torch.optim.SGD, momentum=beta)
    assert bounds_of(running, Mean, betas=(beta, 0.999)) == pytest.approx(summed, rel=1e-4)


def test_a_mean_over_very_many_steps_counts_as_one_over_ten(running):
    """What SGD's usual momentum adds up to; for wider bounds nothing was measured."""
    long = bounds_of(running, Mean, betas=(0.99, 0.999))
    summed = bounds_of(running, torch.optim.SGD, momentum=0.99)
    # Not to the last digit: errors of wider bounds change a little which gradients meet which zeros.
    assert {name: bound * 10 for name, bound in long.items()} == pytest.approx(summed, rel=1e-3)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RAdam, torch.optim.Adamax])
def test_under_adam_the_error_of_a_step_is_its_share_of_the_step(running, optimizer):
    """In each coordinate over the root of its mean square, on the layer itself: a target of 0.01 moves it by about that much."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 32, bias=False)
    stepped, session = optimizer(layer.parameters(), lr=0.0), running(target=0.01)
    sizes = torch.logspace(-0.3, 0.3, 64)
    for _ in range(97):
        stepped.zero_grad()
        layer(torch.randn(256, 64) * sizes).backward(torch.randn(256, 32))
        stepped.step()
    x, delta = torch.randn(256, 64) * sizes, torch.randn(256, 32)
    bound = session.sites.of(layer).bound
    state = stepped.state[layer.weight]
    root = state["exp_inf"] if "exp_inf" in state else state["exp_avg_sq"].sqrt()
    moved = delta.T @ (decode(encode(x, bound)) - x)
    share = float((moved / root).square().mean().sqrt() / (10 * state["exp_avg"].abs() / root).mean())
    assert share == pytest.approx(0.01, rel=0.3)


@pytest.mark.parametrize("kind", ["rows", "images", "permuted"])
def test_the_error_of_the_first_examples_is_that_of_the_whole_copy(kind):
    x = torch.randn(20, 16, 128, 7, generator=torch.Generator().manual_seed(0)).relu()
    x = {"rows": x.flatten(1), "images": x[3:], "permuted": x.permute(1, 0, 2, 3)}[kind]
    flat = whole_storage(x)
    packed = encode(flat, 0.05)
    assert len(packed.parts) > 1
    whole = decode(packed).as_strided(x.shape, x.stride(), x.storage_offset()) - x
    count = -(-len(x) // SAMPLE)
    assert torch.equal(sample_error(packed, x, batched=True), whole[:count])
    assert torch.equal(sample_error(packed, x, batched=False), whole)


def after_three_steps(running, backward: Callable[[nn.Module, torch.optim.Optimizer], None]) -> float:
    """The bound of a layer whose gradients `backward` makes."""
    model, session = network(), running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(3):
        optimizer.zero_grad()
        backward(model, optimizer)
        optimizer.step()
    session.stop()
    return session.sites.of(model[2]).bound


def whole(model, _):
    model(batch()).square().sum().backward()


def test_micro_batches_equal_one_big_batch(running):
    def parts(model, _):
        for part in batch().chunk(4):
            model(part).square().sum().backward()

    assert after_three_steps(running, parts) == pytest.approx(after_three_steps(running, whole), rel=1e-4)


def test_a_step_with_infinite_gradients_is_measured_again(running):
    model, session = network(), running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    (model(batch()).sum() * torch.inf).backward()
    for weight in model.parameters():
        weight.grad.zero_()
    optimizer.step()
    assert session.sites.of(model[2]).bound is None
    assert session.sites.of(model[2]).observing
    train_step(model, optimizer, batch())
    assert session.sites.of(model[2]).bound > 0


@pytest.mark.parametrize("kernel", [1, 3])
def test_the_error_model_predicts_the_measured_gradient_error(kernel):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 8, 12, 12, generator=generator).relu()
    delta = torch.randn(16, 24, 12, 12, generator=generator)
    bound = 0.05
    moved = decode(encode(x, bound)) - x
    weight = torch.nn.grad.conv2d_weight(moved, (24, 8, kernel, kernel), delta, padding=kernel // 2)
    per_channel = float(delta.square().sum() / 24)
    predicted = bound / 3**0.5 * (float((x != 0).float().mean()) * per_channel) ** 0.5
    assert 0.8 <= float(weight.square().mean().sqrt()) / predicted <= 1.1


@pytest.mark.parametrize("to_none", [True, False])
def test_backward_passes_without_an_optimizer_step_count_for_nothing(running, to_none):
    def the_third_counts(model, optimizer):
        for scale in (1000.0, 1000.0, 1.0):
            optimizer.zero_grad(set_to_none=to_none)
            (model(batch()).square().sum() * scale).backward()

    assert after_three_steps(running, the_third_counts) == pytest.approx(after_three_steps(running, whole), rel=1e-4)


def test_sigma_is_measured_layer_by_layer_and_near_its_target(running):
    model, session = network(), running()
    warm_up(model, steps=17, momentum=0.9)
    sigmas = {name: row.sigma for name, row in session.figures.layers.items()}
    assert all(0.5 <= sigma <= 2 for sigma in sigmas.values() if sigma is not None), sigmas
    assert sum(sigma is not None for sigma in sigmas.values()) >= 2


def test_a_layer_whose_sigma_is_too_large_is_tightened_and_then_switched_off(running, monkeypatch):
    monkeypatch.setattr("kompakt_runtime.bounds.observe.sigma_ratio", lambda seen, bound: 10.0)
    model, session = network(), running()
    warm_up(model, steps=5)
    before = {site.name: site.bound for site in session.sites._sites.values()}
    site = session.sites.of(model[2])
    assert (site.divisor, site.mode) == (10.0, "ErrorBounded")
    monkeypatch.setattr("kompakt_runtime.bounds.observe.sigma_ratio", lambda seen, bound: 50.0)
    warm_up(model, steps=4)
    assert site.mode == "Lossless"
    assert site.bound < before["2"]
    session.figures.layers.clear()
    gradients(model, batch())
    assert "2" not in session.figures.layers


@pytest.mark.parametrize(("kind", "least"), [("linear", 0.95), ("1x1", 0.95), ("3x3", 0.8)])
def test_measured_sigma_agrees_with_the_model_on_synthetic_data(kind, least):
    """Zero-mean delta, 8 x 8 places and more, over 10^4 weights: within the range that borders explain."""
    generator = torch.Generator().manual_seed(0)
    side = {"linear": 0, "1x1": 1, "3x3": 3}[kind]
    module = nn.Conv2d(16, 48, side, padding=side // 2) if side else nn.Linear(128, 96)
    shapes = ((16, 16, 8, 8), (16, 48, 8, 8)) if side else ((1024, 128), (1024, 96))
    weights, total, bound = 0, 0.0, 0.05
    while weights < 10_000:
        x = torch.randn(shapes[0], generator=generator).relu()
        delta = torch.randn(shapes[1], generator=generator)
        error = decode(encode(x, bound)) - x
        node, slot = (module(x).grad_fn, "input" if side else "mat1")
        spread = contraction(node, slot, x.shape, module.weight)
        assert spread.outputs(delta) == shapes[1][1]
        moved = spread.gradient(error, delta)
        squares = float((delta.square() * spread.nonzero(x)).sum()) / spread.outputs(delta)
        seen = LayerObservation(1, 1, 1, squares, 1, float(moved.square().mean().sqrt()))
        total += sigma_ratio(seen, bound) ** 2 * moved.numel()
        weights += moved.numel()
    assert least <= (total / weights) ** 0.5 <= 1.05


def test_only_layers_that_may_be_lossy_are_measured(running):
    session = running(mode="Lossless", overrides=(SiteOverride("2", "ErrorBounded"),))
    model = network()
    warm_up(model, steps=1)
    exact, lossy = (session.sites.of(model[place]) for place in (0, 2))
    assert (exact.observing, exact.bound, lossy.observing) == (False, None, True)
    assert lossy.bound is not None, "its bound is renewed although the job's mode is Lossless"
    assert session.sites.observing()


def test_the_target_is_met_on_average_where_gradients_of_steps_differ_by_far(running):
    """One batch in four has a loss of thirty times the others'; bounds are renewed every 32 steps."""
    torch.manual_seed(0)
    layer, luck = nn.Linear(64, 16), random.Random(1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0, momentum=0.9)
    running(target=0.01)
    shares = []
    for step in range(480):
        x, wanted = torch.randn(128, 64), torch.randn(128, 16) * (30 if luck.random() < 0.25 else 1)
        optimizer.zero_grad()
        F.mse_loss(layer(x.clone()), wanted).backward()  # a copy: what somebody else holds is not packed
        with torch.enable_grad():
            weight = layer.weight.detach().requires_grad_()
            F.mse_loss(F.linear(x, weight, layer.bias.detach()), wanted).backward()
        optimizer.step()
        momentum = optimizer.state[layer.weight]["momentum_buffer"]
        if step > 32:
            shares.append(float((layer.weight.grad - weight.grad).square().mean() / momentum.abs().mean() ** 2))
    assert 0.005 < statistics.fmean(shares) ** 0.5 < 0.016
