"""What is the same in every step is rounded another way in each, so that errors do not add up."""

import math

import pytest
import torch
from torch import nn

from kompakt_runtime.codec.rounding import RANKS, Seeds
from tests.support.runtime.small_training import network, train_step, warm_up

STEPS = 32


class OnTrunk(nn.Module):
    """A head behind frozen layers. One of its inputs is the same for all examples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Linear(64, 64).requires_grad_(False)
        self.trunk.weight[0], self.trunk.bias[0] = 0.0, 0.37
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        return self.head(self.trunk(x))


def examples(seed: int = 0) -> torch.Tensor:
    return torch.randn(256, 64, generator=torch.Generator().manual_seed(seed))


def gradient(model: nn.Module) -> torch.Tensor:
    model.zero_grad()
    (model(examples()) - 1).square().sum().backward()
    return model.head.weight.grad.clone()


def root_mean_square(t: torch.Tensor) -> float:
    return float(t.square().mean().sqrt())


def test_errors_of_a_batch_that_comes_again_do_not_add_up(running):
    model, session = OnTrunk(), running()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=1e-6, momentum=0.9)
    for step in range(3):
        train_step(model, optimizer, examples(step))
    session.sites.of(model.head).observing = False
    drawn = session.hooks.seeds.drawn
    ours = [gradient(model) for _ in range(STEPS)]
    assert session.hooks.seeds.drawn == drawn + STEPS
    session.stop()
    errors = torch.stack(ours) - gradient(model)
    once = root_mean_square(errors)
    assert once > 0
    # Rounded to nearest both are sqrt(STEPS).
    assert root_mean_square(errors.sum(0)) / (once * math.sqrt(STEPS)) < 1.5
    constant = errors[:, :, 0]
    assert root_mean_square(constant.sum(0)) / (root_mean_square(constant) * math.sqrt(STEPS)) < 1.7
    assert root_mean_square(constant) < 3 * once, "nor do those of examples that share a number"
    row = session.figures.layers["head"]
    assert row.error <= row.bound * (1 + 1e-6)
    assert session.figures.violations == 0


def test_what_weights_that_move_compute_is_rounded_to_nearest(running):
    model, session = network(), running()
    warm_up(model)
    assert session.figures.compressed == 9
    assert session.hooks.seeds.drawn == 3, "of the batch itself, which the first of three layers reads"


def test_a_training_that_goes_on_draws_seeds_that_were_not_there_yet(running):
    model, session = OnTrunk(), running()
    warm_up_head(model)
    session.stop()
    state = session.remembered.state()
    assert state["seeds"] == session.hooks.seeds.drawn > 0
    after = running()
    after.remembered.load(state)
    warm_up_head(model)
    assert after.hooks.seeds.drawn > state["seeds"]


def warm_up_head(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.head.parameters(), lr=1e-3)
    for step in range(3):
        train_step(model, optimizer, examples(step))


class Entry:
    constant = True
    probe = torch.zeros(1)


def test_no_two_ranks_and_no_two_tensors_share_a_seed(monkeypatch):
    seeds = [Seeds(rank) for rank in (0, 1, 2)]
    drawn = [one.of(Entry) for one in seeds for _ in range(5)]
    assert len(set(drawn)) == 15
    assert max(drawn) < 3 << RANKS


@pytest.mark.parametrize("why", ["computed", "on a GPU"])
def test_kernels_and_what_is_new_in_each_step_get_none(why, monkeypatch):
    class Other(Entry):
        constant = why != "computed"

    if why == "on a GPU":
        from kompakt_runtime.codec import rounding, select

        monkeypatch.setattr(rounding, "encoder", lambda *_: select.Encoder("k", "", None, None, stochastic=False))
    seeds = Seeds(0)
    assert seeds.of(Other) is None
    assert seeds.drawn == 0
