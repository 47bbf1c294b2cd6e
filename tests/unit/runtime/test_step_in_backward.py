"""An optimizer for each weight that steps in the backward pass, as its gradient is there: bounds are those of a usual loop."""

import pytest
import torch
from torch import nn

from tests.support.runtime.small_training import batch, failed, network, train_step


def bounds(session, model: nn.Module) -> dict[str, float]:
    session.stop()
    assert not failed(session)
    return {name: session.sites.of(model.get_submodule(name)).bound for name in ("2", "5")}


def usual(running) -> dict[str, float]:
    model, session = network(), running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    for step in range(6):
        train_step(model, optimizer, batch(step))
    return bounds(session, model)


@pytest.mark.parametrize("to_none", [True, False])
def test_a_step_inside_the_backward_pass_gives_the_same_bounds(running, to_none):
    wanted = usual(running)
    model, session = network(), running()

    def step(weight: nn.Parameter) -> None:
        optimizers[weight].step()
        optimizers[weight].zero_grad(set_to_none=to_none)

    optimizers = {weight: torch.optim.SGD([weight], lr=1e-6, momentum=0.9) for weight in model.parameters()}
    for weight in optimizers:
        weight.register_post_accumulate_grad_hook(step)
    for number in range(6):
        model(batch(number)).square().sum().backward()
    assert bounds(session, model) == pytest.approx(wanted, rel=1e-4)
