"""Small models whose compiled code hands over what gradients that go on are made of, and how they are trained."""

import torch
from torch import nn
from torch.nn import functional as F


class Gated(nn.Module):
    """Both factors of a gated product are kept, and each is needed for the other's gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.up, self.down = nn.Linear(16, 64), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Normed(nn.Module):
    """A norm with a weight of its own, on a residual path."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.inner, self.last = nn.Linear(16, 48), nn.RMSNorm(48), nn.Linear(48, 48), nn.Linear(48, 8)

    def forward(self, x):
        h = self.first(x)
        return self.last(h + self.inner(self.norm(h)))


class Curved(nn.Module):
    """What the last layer reads is computed again from what the activation reads."""

    def __init__(self, through=F.gelu) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.through = nn.Linear(16, 64), nn.Linear(64, 8), through

    def forward(self, x):
        return self.last(self.through(self.first(x)))


def rows(count: int = 32, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 6, 16, generator=torch.Generator().manual_seed(seed))


def trained(model, batch=rows, steps: int = 6, passes: int = 1) -> dict[str, torch.Tensor]:
    """Gradients of the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        for number in range(passes):
            model(batch(seed=step + 100 * number)).square().mean().backward()
        optimizer.step()
    learnt = {name: weight for name, weight in model.named_parameters() if weight.grad is not None}
    return {name.removeprefix("_orig_mod."): weight.grad.clone() for name, weight in learnt.items()}


def off(ours, plain) -> float:
    """Of all parameters that have a gradient but for rounding: a key's bias has none."""
    felt = [name for name in plain if plain[name].norm() > 1e-6]
    return max(float((ours[name] - plain[name]).norm() / plain[name].norm()) for name in felt)
