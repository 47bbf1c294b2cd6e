"""What becomes of one saved tensor: which copy serves whom, what stays as it is and by what word it is counted."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kompakt_runtime.codec.rounding import WIDER
from tests.support.runtime.small_training import Holder, batch, failed, gradients, network, ours_and_plain, train_step, warm_up


def test_who_reads_only_the_shape_leaves_the_values_to_others(running):
    """A sigmoid saves its output, and then a frozen convolution does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid(), nn.Conv2d(8, 4, 3))
    model[2].weight.requires_grad_(False)
    session = running(mode="Lossless")
    ours, plain = (found["input"] for found in ours_and_plain(model, session))
    assert torch.equal(ours, plain)
    assert not failed(session)


@pytest.mark.parametrize("first", ["product", "layer"])
def test_what_must_be_exact_is_so_for_a_layer_too(running, first):
    """A batch of zeros and threes fits in a bit an element; neither a layer's bound nor who comes first changes that."""

    def both(model, x):
        parts = {"product": lambda: (model.scale * x).sum(), "layer": lambda: model.line(x).square().sum()}
        return sum(parts.pop(name)() for name in (first, *(parts.keys() - {first})))

    torch.manual_seed(0)
    inner = nn.Module()
    inner.line, inner.scale = nn.Linear(32, 4), nn.Parameter(torch.ones(64, 32))
    model = Holder(inner, both)
    x = 3.0 * (torch.randn(64, 32) > 0)
    session = running()
    for _ in range(3):
        model.zero_grad()
        model(x).backward()
        torch.optim.SGD(model.parameters(), lr=1e-9).step()
    ours = inner.scale.grad.clone()
    assert torch.equal(ours, x)
    assert not failed(session)


def test_what_is_no_gain_stays_and_is_counted_so(running):
    model, session = nn.Linear(2, 2), running()
    warm = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(2):
        model(torch.randn(1, 2)).square().sum().backward()
        warm.step()
    assert session.figures.raw["NoGain"] == 2
    assert session.figures.compressed == 0


@pytest.mark.parametrize(("settings", "dtype"), [({"min_tensor_bytes": 1 << 20}, torch.float32), ({}, torch.complex64)])
def test_no_bound_is_asked_for_where_nothing_may_be_lossy(running, monkeypatch, settings, dtype):
    """A first bound is read back from the device, and the report tells the widest one."""
    session = running(**settings)
    monkeypatch.setattr("kompakt_runtime.bounds.site.Site.bound_for", lambda *_: 1 / 0)
    nn.Linear(8, 4, dtype=dtype)(torch.randn(64, 8, dtype=dtype)).abs().sum().backward()
    assert not failed(session)
    assert ("Small" if settings else "OtherType") in session.figures.raw


@pytest.mark.parametrize(("rows", "packed"), [(60, True), (50, True), (40, False)])
def test_a_part_of_a_storage_is_packed_if_it_is_at_least_half(running, rows, packed):
    model, session = nn.Linear(32, 4), running()
    model(torch.randn(100, 32)[:rows]).square().sum().backward()
    assert session.figures.compressed == packed
    assert session.figures.raw["PartOfStorage"] == (not packed)


def test_what_is_not_held_any_more_is_packed_again_after_a_measured_step(running):
    model, session = network(), running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    seen = []
    for step in range(1, 9):
        kept = []
        handle = model[1].register_forward_hook(lambda _m, _a, output, kept=kept: kept.append(output)) if step < 4 else None
        session.figures.forget()
        model(batch(step)).square().sum().backward()
        optimizer.step()
        seen.append(session.figures.raw["HeldElsewhere"])
        if handle:
            handle.remove()
    # Steps 1, 2, 3 and 5 are measured; in the fourth nobody knows yet, and from the fifth on it is packed as ever.
    assert seen == [0, 0, 0, 1, 0, 0, 0, 0]
    assert "2" in session.figures.layers


def test_outliers_of_a_layer_are_told(running):
    model, session = nn.Linear(32, 4), running()
    numbers = torch.randn(64, 32)
    numbers[3, 5], numbers[7, 7] = math.inf, math.nan
    session.sites.of(model).bound = 0.1
    model(numbers * 1).sum().backward()
    assert session.figures.layers["Linear"].outliers == 2


def test_one_layer_s_sigma_is_measured_at_a_time(running):
    model, session = network(), running()
    warm_up(model, steps=2)
    assert sum(row.sigma is not None for row in session.figures.layers.values()) == 1


def test_only_measured_steps_look_at_inputs_of_nonlinear_operations(running):
    torch.manual_seed(0)
    model, session = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Conv2d(8, 4, 3)), running(activation_gradients="Bounded")
    warm_up(model, steps=3)
    gradients(model, batch(), leaf=False)
    (operation,) = session.hooks.operations
    assert operation.bound > 0
    assert (operation.elements, operation.magnitude) == (0, None)


def test_what_is_negated_only_when_it_is_read_passes_through(running):
    torch.manual_seed(0)
    model, session = (
        Holder(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), lambda model, x: model(x.conj().imag)),
        running(activation_gradients="Exact"),
    )
    ours, plain = (found["model.0.weight"] for found in ours_and_plain(model, session, torch.fft.fft(torch.randn(16, 8))))
    assert torch.equal(ours, plain)
    assert session.figures.raw == {"NotPlainTensor": 1}


def test_a_pool_whose_output_shows_only_further_out_is_found_there(running):
    # The inner module gives its output in an object that nobody looks into.
    boxed = Holder(nn.Identity(), lambda _, x: SimpleNamespace(pooled=nn.functional.max_pool2d(x * 1, 2)))
    session, x = running(mode="Lossless"), torch.randn(3, 16, 16, requires_grad=True)
    Holder(boxed, lambda inner, x: inner(x).pooled * 2)(x).sum().backward()
    assert x.grad.sum() == 2 * 3 * 64
    assert session.figures.layers["model [indices]"].plain == 3 * 64 * 8, "of images without a batch too"


def test_an_input_of_a_norm_that_somebody_holds_is_not_packed_in_vain(running):
    torch.manual_seed(0)
    model, session, kept = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Conv2d(8, 4, 3)),
        running(activation_gradients="Bounded"),
        [],
    )
    model[0].register_forward_hook(lambda _module, _args, output: kept.append(output))
    warm_up(model, steps=3)
    session.figures.forget()
    gradients(model, batch(), leaf=False)
    assert session.figures.raw["HeldElsewhere"] == 1
    assert "1 [gelu]" not in session.figures.layers


@pytest.mark.parametrize(("model", "shape"), [(nn.Linear(512, 64), (512,)), (nn.Conv2d(8, 16, 3), (8, 24, 24))])
def test_the_sigma_of_a_layer_without_a_batch_is_measured_too(running, model, shape):
    torch.manual_seed(0)
    session = running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(3):
        train_step(model, optimizer, torch.randn(shape))
    (row,) = session.figures.layers.values()
    assert 0.5 < row.sigma < 2


def test_of_several_first_bounds_the_widest_is_told(running):
    model, session = nn.Linear(32, 4), running()
    for scale in (0.1, 1.0, 0.01):
        (model(scale * torch.randn(64, 32)) / scale).square().sum().backward()
    site = session.sites.of(model)
    # What no weight computed is rounded another way each time, within a bound as much wider as gives the same variance.
    assert session.figures.layers["Linear"].bound == site.unmeasured * WIDER
    assert site.unmeasured > 5 * site.bound_for(0.1 * torch.randn(64, 32), 0.01)
