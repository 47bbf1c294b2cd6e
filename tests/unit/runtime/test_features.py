"""Bounds by feature: which, where they may be, and what they do to gradients where a few features are far larger than others."""

import pytest
import torch
from torch import nn

from kompakt_runtime.codec import Channels
from kompakt_runtime.codec.features import APART, BoundsWanted, agreed, feature_bounds, in_storage

WIDTH = 64


def depths(*values: int):
    return torch.tensor(values, dtype=torch.uint8)


def test_bounds_by_feature_do_to_the_step_what_one_bound_would():
    harm, counts = torch.logspace(-4, 2, WIDTH), torch.arange(1.0, WIDTH + 1)
    found = feature_bounds(1, harm, counts)
    bounds = found.widest * 2.0 ** -found.depths.double()
    assert float((counts * harm * bounds.square()).sum() / (counts * harm).sum()) == pytest.approx(1)
    assert found.error == pytest.approx(float((counts * bounds.square()).sum() / counts.sum()) ** 0.5)
    shares = harm * bounds.square()
    assert shares.max() / shares.min() <= 4, "features share it alike, to a power of two"


@pytest.mark.parametrize(
    ("harm", "counts"),
    [
        (torch.ones(8), torch.ones(8)),
        (torch.logspace(0, 1, 8), torch.ones(8)),
        (torch.tensor([1e-4, 1.0, torch.nan, 1.0]), torch.ones(4)),
        (torch.tensor([1e-4, 1.0, 0.0, 1.0]), torch.ones(4)),
        (torch.tensor([1e-4, 1.0]), torch.zeros(2)),
    ],
)
def test_where_one_bound_serves_or_figures_say_nothing_there_are_none(harm, counts):
    assert feature_bounds(0, harm, counts) is None


def test_a_feature_of_which_nothing_is_packed_has_no_say():
    counts = torch.tensor([1.0, 1.0, 0.0])
    found = feature_bounds(0, torch.tensor([1e-4, 1.0, 1e9]), counts)
    assert found.depths[:2].tolist() == feature_bounds(0, torch.tensor([1e-4, 1.0]), counts[:2]).depths.tolist()


@pytest.mark.parametrize(
    ("x", "along", "stride"),
    [
        (torch.zeros(5, 3), 1, 1),
        (torch.zeros(3, 5).T, 1, 5),
        (torch.zeros(2, 3, 4, 4), 1, 16),
        (torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), 1, 1),
        (torch.zeros(5, 4)[:, :3], 1, None),
        (torch.zeros(6, 3)[1:], 1, None),
        (torch.zeros(5, 4), 1, None),
        (torch.zeros(1, 3).expand(5, 3), 1, None),
    ],
)
def test_features_are_channels_where_a_tensor_fills_its_storage(x, along, stride):
    found = in_storage(x, along, depths(0, 4, 4))
    assert (found.stride if found is not None else None) == stride


def test_readers_agree_on_the_tightest_bound_of_each_channel():
    one = BoundsWanted(0.5, 2.0, Channels(depths(0, 4, 1), 1))
    other = BoundsWanted(0.25, 1.0, Channels(depths(0, 1, 4), 1))
    both = agreed([one, other])
    assert (both.bound, both.widest, both.channels.depths.tolist()) == (0.25, 1.0, [0, 3, 4])
    assert agreed([one]) is one


@pytest.mark.parametrize(
    "other",
    [BoundsWanted(0.25), BoundsWanted(0.25, 1.0, Channels(depths(0, 1, 4), 2)), BoundsWanted(1, 1, Channels(depths(0, 4), 1))],
)
def test_readers_that_have_other_channels_share_one_bound(other):
    assert agreed([BoundsWanted(0.5, 2.0, Channels(depths(0, 4, 1), 1)), other]) is None


LARGE = torch.arange(WIDTH) % 16 == 5  # four features a hundred times larger


class Planted:
    """A layer under Adam whose input has outlier channels, in a running session; its features' gradient errors."""

    def __init__(self, running, dtype, optimizer=torch.optim.AdamW):
        torch.manual_seed(0)
        self.layer = nn.Linear(WIDTH, 48, bias=False).to(dtype)
        self.optimizer, self.session, self.dtype = optimizer(self.layer.parameters(), lr=0.0), running(target=0.01), dtype
        self.sizes = torch.where(LARGE, 100.0, 1.0)

    def errors(self):
        """After some steps: root mean square of each feature's gradient error over that of its gradient, of the last step."""
        for _ in range(10):
            x = (torch.randn(512, WIDTH) * self.sizes).to(self.dtype)
            delta = torch.randn(512, 48).to(self.dtype)
            self.optimizer.zero_grad()
            self.layer(x.clone()).backward(delta)  # what somebody else holds is not packed
            self.optimizer.step()
        self.session.stop()
        exact = (delta.T @ x).double()
        moved = self.layer.weight.grad.double() - exact
        return (moved.square().mean(0) / exact.square().mean(0)).sqrt()

    @property
    def row(self):
        return self.session.figures.layers["Linear"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_features_beside_outliers_bear_the_same_relative_error(running, monkeypatch, dtype):
    found = Planted(running, dtype)
    errors = found.errors()
    site = found.session.sites.of(found.layer)
    assert site.features is not None
    assert errors[~LARGE].mean() < 0.05
    assert errors[LARGE].mean() / errors[~LARGE].mean() == pytest.approx(1, abs=0.6)
    assert not found.session.figures.violations
    assert found.session.figures.checked
    assert found.row.sigma is None or found.row.sigma < 1.5
    monkeypatch.setattr("kompakt_runtime.bounds.site.feature_bounds", lambda *_: None)
    one = Planted(running, dtype)
    assert one.errors()[~LARGE].mean() < 0.05, "the target sees to small features in any case"
    assert found.row.saved < 0.8 * one.row.saved


class Both(nn.Module):
    """Two layers that read one tensor, as projections of attention do; `function` of it is read as well."""

    def __init__(self, function=None):
        super().__init__()
        self.queries, self.keys = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 32, bias=False)
        self.function = function

    def forward(self, x):
        x = x * 1
        out = torch.cat([self.queries(x), self.keys(x)], 1)
        return out if self.function is None else torch.cat([out, self.function(x)], 1)


@pytest.mark.parametrize("function", [None, nn.functional.gelu])
def test_layers_that_read_one_tensor_agree_and_others_share_one_bound(running, function):
    torch.manual_seed(0)
    model, session = Both(function), running(target=0.01, activation_gradients="Bounded")
    optimizer, packed = torch.optim.AdamW(model.parameters(), lr=0.0), []
    compress = session.hooks.ledger.later.compress
    session.hooks.ledger.later.compress = lambda *what: packed.append(what[6] is not None) or compress(*what)
    for _ in range(6):
        x = (torch.randn(512, WIDTH) * torch.where(LARGE, 100.0, 1.0)).requires_grad_() * 1  # a leaf makes the pass exact
        optimizer.zero_grad()
        out = model(x)
        out.backward(torch.randn(out.shape))
        optimizer.step()
    assert all(session.sites.of(layer).features for layer in (model.queries, model.keys))
    assert packed[-1] == (function is None), "as it was packed in the end"
    assert session.figures.checked
    assert not session.figures.violations


def test_under_sgd_coordinates_are_stepped_by_their_gradients_and_one_bound_serves(running):
    found = Planted(running, torch.float32, torch.optim.SGD)
    errors = found.errors()
    assert found.session.sites.of(found.layer).features is None
    assert errors[~LARGE].mean() > 10 * errors[LARGE].mean()


def test_powers_of_two_are_worth_it_from_a_factor_of_eight_on():
    assert APART == 3
