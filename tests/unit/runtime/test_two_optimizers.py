"""Several optimizers share one model: each layer and norm is judged by the one that steps its weight, as with a single one."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.support.runtime.small_training import batch, failed

Order = tuple[tuple[str, ...], ...]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(inputs, 8, 3, padding=1) for inputs in (3, 8)]
    first, second = ([part, nn.BatchNorm2d(8), nn.GELU()] for part in convolutions)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(8 * 36, 4))


def parts(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """As some train: norms by one optimizer, matrices by another."""
    found: dict[str, list[nn.Parameter]] = {"norms": [], "layers": []}
    for module in model:
        found["norms" if isinstance(module, nn.BatchNorm2d) else "layers"] += module.parameters()
    return found


def sgd(weights: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=1e-5, momentum=0.9)


def training(running, order: Order, every: int = 1) -> Iterator[dict[str, float]]:
    """Bounds after each step. order: what each optimizer steps, first to last; every: the norms' alone only in each so-many-th
    step.
    """
    session, model = running(activation_gradients="Bounded"), network()
    owned = parts(model)
    optimizers = [(group, sgd([weight for name in group for weight in owned[name]])) for group in order]
    try:
        for step in itertools.count(1):
            model(batch(0)).square().sum().backward()
            for group, optimizer in optimizers:
                if "layers" in group or step % every == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            assert not failed(session)
            yield {each.name: each.bound for each in (*session.hooks.operations, *session.sites._sites.values())}
    finally:
        session.stop()


def bounds(running, order: Order, steps: int = 9) -> dict[str, float]:
    *_, last = itertools.islice(training(running, order), steps)
    assert last.keys() == {"0", "1 [norm]", "2 [gelu]", "3", "4 [norm]", "5 [gelu]", "7"}
    return last


@pytest.mark.parametrize("order", [(("norms",), ("layers",)), (("layers",), ("norms",))])
def test_bounds_are_those_of_one_optimizer_for_all(running, order):
    """The same rule steps all weights, so training is the same; momentum has grown to several gradients by the last step."""
    one = bounds(running, (("norms", "layers"),))
    assert all(one.values())
    assert bounds(running, order) == pytest.approx(one, rel=0.02)


def test_a_weight_that_is_stepped_less_often_is_waited_for(running):
    """The ninth step is measured, the next ones are not; the norms are stepped in the eighth and in the twelfth."""
    found = list(itertools.islice(training(running, (("layers",), ("norms",)), every=4), 12))
    for name in ("1 [norm]", "4 [norm]"):
        assert found[7][name] == found[10][name] != found[11][name]


def test_norms_that_nobody_steps_are_judged_too(running):
    assert all(bounds(running, (("layers",),), steps=2).values())


def test_each_layer_of_each_optimizer_has_its_sigma_measured(running):
    torch.manual_seed(0)
    model, session = nn.Sequential(*(nn.Linear(108, 108) for _ in range(4))), running()
    optimizers = [sgd([weight for layer in half for weight in layer.parameters()]) for half in (model[:2], model[2:])]
    for step in range(17):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(batch(step).flatten(1)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert all(0.5 < session.figures.layers[name].sigma < 2 for name in "0123")
