"""Measuring ends and bounds come, whoever steps the weights: another tensor of the optimizer, a state of its own, or nobody."""

import pytest
import torch
from torch import nn

from kompakt_runtime.bounds import patience
from tests.support.runtime.small_training import batch, network, train_step


def measured(session) -> list[str]:
    return [site.name for site in session.sites._sites.values() if site.observing]


def masters(model: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """The optimizer's own copies of the weights, as mixed-precision wrappers keep them."""
    return [(weight, nn.Parameter(weight.detach().clone())) for weight in model.parameters()]


def master_step(model: nn.Module, optimizer, pairs, x: torch.Tensor) -> None:
    model(x).square().sum().backward()
    for weight, master in pairs:
        master.grad, weight.grad = weight.grad, None
    optimizer.step()
    for weight, master in pairs:
        weight.data.copy_(master)


def test_an_optimizer_that_steps_copies_of_the_weights_ends_it_too(running):
    model, session = network(), running()
    pairs = masters(model)
    optimizer = torch.optim.SGD([master for _, master in pairs], lr=1e-3)
    for step in range(patience.OTHERS + 4):
        master_step(model, optimizer, pairs, batch(step))
    sites = [session.sites.of(model[place]) for place in (2, 5)]
    assert all(site.bound for site in sites), "a bound of its own measure"
    seen = []
    for step in range(24):
        master_step(model, optimizer, pairs, batch(step))
        seen.append(bool(measured(session)))
    assert seen.count(False) > len(seen) // 2, "most steps are not measured"
    assert any(seen), "but some are, again and again"


def test_a_loop_without_an_optimizer_ends_it_too(running, monkeypatch):
    monkeypatch.setattr(patience, "PASSES", 8)
    model, session = network(), running()
    for step in range(32):
        model(batch(step)).square().sum().backward()
        for weight in model.parameters():
            weight.data -= 1e-3 * weight.grad
            weight.grad = None
    assert not measured(session)
    assert all(session.sites.of(model[place]).bound for place in (2, 5))


def test_forward_passes_that_nobody_reads_back_end_it_too(running, monkeypatch):
    monkeypatch.setattr(patience, "PASSES", 8)
    model, session = network(), running()
    for step in range(20):
        model(batch(step))
    assert not measured(session)


class Opaque(torch.Tensor):
    """A momentum in a form of its own: no operation takes it."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.linalg.vector_norm:
            raise NotImplementedError("no vector_norm")
        return super().__torch_function__(function, types, args, kwargs or {})


class OwnState(torch.optim.SGD):
    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            for weight in group["params"]:
                self.state[weight]["exp_avg"] = torch.zeros(4).as_subclass(Opaque)
        return loss


def test_where_the_momentum_cannot_be_read_the_gradient_serves(running):
    model, session = network(), running()
    optimizer = OwnState(model.parameters(), lr=1e-3)
    for step in range(3):
        train_step(model, optimizer, batch(step))
    assert not measured(session)
    assert all(session.sites.of(model[place]).bound for place in (2, 5))
    assert not any(reason.startswith("ObserveFailed") for reason in session.figures.raw)
    assert session.figures.raw["NoMomentum"] == len(list(session.sites)), "once a layer"


@pytest.mark.parametrize("where", ["observe.mean_magnitude", "site.mean_magnitude"])
def test_a_measurement_that_always_fails_is_not_tried_for_ever(running, monkeypatch, where):
    def broken(_t):
        raise RuntimeError("broken")

    monkeypatch.setattr(f"kompakt_runtime.bounds.{where}", broken)
    model, session = network(), running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(patience.TRIES + 12):
        train_step(model, optimizer, batch(step))
    assert not measured(session)
    assert session.figures.raw["ObserveFailedRuntimeError"]


def test_a_layer_that_is_seldom_reached_keeps_nobody_else_measuring(running):
    """And is measured when it is reached."""
    torch.manual_seed(0)
    model, session = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)]), running()
    holder = nn.Module()
    holder.experts = model
    holder.forward = lambda x, both: model[0](x).sum() + (model[1](x).sum() if both else 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step(both: bool) -> None:
        optimizer.zero_grad()
        holder(torch.randn(16, 8), both).square().backward()
        optimizer.step()

    step(both=True)
    step(both=False)
    rare = session.sites.of(model[1])
    bound = rare.bound
    for _ in range(patience.TRIES + 8):
        step(both=False)
    assert (rare.observing, session.sites.observing()) == (True, False)
    step(both=True)
    assert rare.bound != bound
