"""Trainings whose saved tensors are computed again, and what was counted of these."""

import torch
from torch import nn

from tests.support.runtime.small_training import Holder

ROWS, WIDE = 48, 32
SQUARE = (WIDE, WIDE)
PARTS = dict.fromkeys("abc", SQUARE) | dict.fromkeys(("scale", "shift"), (WIDE,))


def weights(**shapes: tuple[int, ...]) -> nn.ParameterDict:
    torch.manual_seed(0)
    return nn.ParameterDict({name: nn.Parameter(torch.randn(shape) * 0.2) for name, shape in shapes.items()})


def batch(seed: int = 1) -> torch.Tensor:
    return torch.randn(ROWS, WIDE, generator=torch.Generator().manual_seed(seed))


def trained(function, session, steps: int = 4):
    """Gradients after so many steps that move nothing: with the session, and without it."""
    model = Holder(weights(**PARTS), function)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    found = []
    for step in range(steps + 2):
        if step == steps + 1:
            session.stop()
        optimizer.zero_grad()
        x = batch().requires_grad_()
        model(x * 1).square().sum().backward()
        found.append({name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None})
        found[-1]["x"] = x.grad
        if step < steps:
            optimizer.step()
    return found[-2:]


def derived(session) -> dict[str, tuple[int, int]]:
    """Bytes that were computed again, and what was kept for them, by the row of who reads them."""
    rows = session.figures.layers.items()
    return {name: (row.plain, row.saved) for name, row in rows if name.endswith("[derived]")}
