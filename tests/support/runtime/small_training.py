"""A small network, its data, and loops around it, for the tests of training."""

from collections.abc import Callable

import torch
from torch import nn

INPUT = (8, 3, 6, 6)
# The first optimizer of a process loads the compiler, which takes seconds; no test should pay for it.
torch.optim.SGD([torch.zeros(1)])


def network(inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(inplace),
        nn.Flatten(),
        nn.Linear(8 * 36, 4),
    )


def batch(seed: int = 1) -> torch.Tensor:
    return torch.randn(INPUT, generator=torch.Generator().manual_seed(seed))


def warm_up(model: nn.Module, steps: int = 3, scale: float = 1.0, optimizer_class=torch.optim.SGD, **options) -> None:
    """Enough optimizer steps for the first bounds."""
    optimizer = optimizer_class(model.parameters(), lr=1e-3, **options)
    for step in range(steps):
        optimizer.zero_grad()
        (model(batch(step)).square().sum() * scale).backward()
        if scale != 1:
            for weight in model.parameters():
                weight.grad /= scale
        optimizer.step()
    optimizer.zero_grad()


def gradients(model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    x = x.detach().requires_grad_()
    model(x).square().sum().backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    return {**found, "input": x.grad}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Holder(nn.Module):
    """Runs a function as the outermost module."""

    def __init__(self, model: nn.Module, function: Callable) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, x):
        return self.function(self.model, x)


def failed(session) -> list[str]:
    """Reasons for which something of ours did not work in this session."""
    return [reason for reason in session.figures.raw if "Failed" in reason]
