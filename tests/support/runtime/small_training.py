"""A small network, its data, and loops around it, for the tests of training."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session

INPUT = (8, 3, 6, 6)


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


@contextlib.contextmanager
def compressing(mode: str | None = "ErrorBounded", **settings: Any) -> Iterator[Any]:
    """A session around a training; none where there is no mode."""
    session = Session(RuntimeConfig(mode, **{"min_tensor_bytes": 0, **settings})) if mode else None
    if session:
        session.start()
    try:
        yield session
    finally:
        if session:
            session.stop()


def gradients(model: nn.Module, x: torch.Tensor, *, leaf: bool = True) -> dict[str, torch.Tensor]:
    """Of the batch too. leaf: the model is given it itself, and so must leave gradients of activations exact."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    given = x if leaf else x * 1
    model(given).square().sum().backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    return {**found, "input": x.grad}


def ours_and_plain(
    model: nn.Module, session: Session, x: torch.Tensor | None = None, *, leaf: bool = True
) -> tuple[dict[str, torch.Tensor], ...]:
    """Gradients with the session, which ends then, and those without it."""
    x = batch() if x is None else x
    ours = gradients(model, x, leaf=leaf)
    session.stop()
    return ours, gradients(model, x, leaf=leaf)


def double_backward(model: nn.Module, x: torch.Tensor, *, leaf: bool = True) -> dict[str, torch.Tensor]:
    """Gradients of the squared gradient of the input, where there are any; leaf: as of `gradients`."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    given = x if leaf else x * 1
    (slope,) = torch.autograd.grad(model(given).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    return {
        "input": x.grad,
        **{name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None},
    }


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


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
