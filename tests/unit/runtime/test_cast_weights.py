"""Copies of weights in a narrow type, which autocast makes and autograd keeps: made again from the weights."""

import pytest
import torch
from torch import nn

from tests.support.runtime.small_training import failed

WIDE = 32
WEIGHT = 2 * WIDE * WIDE  # bytes of a narrow copy


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE))


def batch(seed: int = 1) -> torch.Tensor:
    return torch.randn(8, WIDE, generator=torch.Generator().manual_seed(seed))


def loss(model, seed: int = 1, **autocast):
    with torch.autocast("cpu", dtype=torch.bfloat16, **autocast):
        return model(batch(seed)).float().square().sum()


def gradients(model) -> list[torch.Tensor]:
    return [weight.grad.clone() for weight in model.parameters()]


def trained(model, steps: int = 3) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()
    return gradients(model)


def again(session) -> int:
    """Bytes of what was computed again."""
    return sum(row.plain for name, row in session.figures.layers.items() if name.endswith("[derived]"))


def alike(ours, plain) -> bool:
    return len(ours) == len(plain) and all(map(torch.equal, ours, plain))


@pytest.mark.parametrize("mode", ["Lossless", "ErrorBounded"])
def test_narrow_copies_of_weights_are_not_kept(running, mode):
    """The first layer's is saved by nobody: its input wants no gradient."""
    session = running(mode=mode, activation_gradients="Exact", verify=True)
    ours = trained(network())
    session.stop()
    assert again(session) == 3 * 2 * WEIGHT
    assert session.figures.violations == 0 < session.figures.checked
    assert not failed(session)
    if mode == "Lossless":
        assert alike(ours, trained(network()))


def test_their_memory_is_let_go(running):
    session = running(mode="Lossless")
    model = network()
    kept = loss(model)
    begun = session.figures.holding.held
    session.stop()
    assert begun < WEIGHT, "what tanh read, and nothing of the weights"
    del kept


def test_the_weights_may_be_stepped_between_both_passes(running):
    """Plain autograd has copies of its own then, and does not mind."""

    def late() -> list[torch.Tensor]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        loss(model).backward()
        later = loss(model, 2)
        optimizer.step()
        later.backward()
        return gradients(model)

    session = running(mode="Lossless")
    ours = late()
    session.stop()
    assert again(session)
    assert alike(ours, late())


def test_weights_that_are_changed_by_hand_are_told_as_plain_autograd_tells_it(running):
    running(mode="Lossless")
    model = network()
    later = loss(model)
    with torch.no_grad():
        model[2].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        later.backward()


def test_a_copy_that_is_older_than_its_weight_is_kept(running):
    """Autocast makes one copy as long as its context lasts, whatever becomes of the weight meanwhile."""

    def inside() -> list[torch.Tensor]:
        model = network()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return trained(model, 4)

    session = running(mode="Lossless")
    session.figures.steps = 100  # no measured step, in which it would be compared
    ours = inside()
    session.stop()
    assert alike(ours, inside())


def test_layers_that_are_left_alone_keep_theirs(running):
    from kompakt_runtime.config import SiteOverride

    session = running(mode="Lossless", overrides=(SiteOverride("2", "None"),))
    trained(network(), 1)
    assert again(session) == WEIGHT


def test_small_ones_are_kept(running):
    session = running(mode="Lossless", min_tensor_bytes=2 * WEIGHT)
    trained(network(), 1)
    assert not again(session)
