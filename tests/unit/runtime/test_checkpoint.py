"""Activation checkpointing: what a region's recomputation starts from is exact and stored once."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from kompakt_runtime.hooks.pair import Hooks
from tests.support.runtime.small_training import batch, failed, warm_up


class Parts(nn.Module):
    """A convolution, a checkpointed region with a dropout, a linear layer; the region's input is a ReLU's output."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.region = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(8, 8, 3, padding=1))
        self.last = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
        self.reentrant = reentrant

    def forward(self, x):
        return self.last(checkpoint(self.region, self.first(x), use_reentrant=self.reentrant))


def gradients(model: nn.Module, around=lambda model, x: model(x)) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(5)
    x = batch().requires_grad_()
    around(model, x).square().sum().backward()
    return {**{name: weight.grad.clone() for name, weight in model.named_parameters()}, "input": x.grad}


def moved(ours: dict, plain: dict) -> set[str]:
    return {name for name in plain if not torch.equal(ours[name], plain[name])}


@pytest.mark.parametrize(("reentrant", "lossy"), [(False, {"last.2.weight"}), (True, {"last.2.weight", "region.3.weight"})])
def test_only_linear_inputs_outside_a_recomputation_or_made_by_it_are_lossy(running, reentrant, lossy):
    model, session = Parts(reentrant), running()
    warm_up(model)
    ours = gradients(model)
    session.stop()
    plain = gradients(model)
    # Were the region's input lossy, every gradient inside and before the region would move.
    assert moved(ours, plain) == lossy
    assert all((ours[name] - plain[name]).norm() < 0.1 * plain[name].norm() for name in lossy)
    assert session.figures.violations == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_lossless_changes_no_bit_through_a_recomputation_with_dropout(running, reentrant):
    model = Parts(reentrant)
    plain = gradients(model)
    session = running(mode="Lossless")
    assert not moved(gradients(model), plain)
    assert not failed(session)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_region_s_input_has_one_entry_with_the_relu_that_made_it(running, reentrant, monkeypatch):
    model, session = Parts(reentrant), running()
    warm_up(model)
    kept = []
    pack = Hooks.pack

    def seen(self, t, call, buffers):
        handle = pack(self, t, call, buffers)
        kept.append((t.shape, getattr(handle, "entry", None)))
        return handle

    monkeypatch.setattr(Hooks, "pack", seen)
    output = model(batch())
    entries = [entry for shape, entry in kept if shape == (8, 8, 6, 6)]
    # The ReLU's save and the region's input, then the ReLU behind the region.
    assert len(entries) == 3
    assert entries[0] is entries[1]
    assert entries[0].packed is None
    assert entries[0].kept_bytes == entries[0].nbytes
    del output
    assert session.figures.violations == 0


def test_a_checkpoint_around_the_whole_model_runs_as_without_us(running):
    model = Parts(False)
    warm_up(model)

    def whole(model, x):
        return checkpoint(model, x, use_reentrant=False)

    plain = gradients(model, whole)
    session = running()
    assert not moved(gradients(model, whole), plain)
    assert session.figures.plain_bytes == 0
    assert session.figures.raw["UserHooks"] > 0
