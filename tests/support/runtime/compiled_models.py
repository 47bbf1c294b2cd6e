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


class Sequences(nn.Module):
    """Two blocks of a transformer over token numbers, of any number and length of sequences."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(50, width), nn.Linear(width, 50)
        self.blocks = nn.Sequential(SequenceBlock(width), SequenceBlock(width))

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


class SequenceBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        query, key, value = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


def tokens(count: int, length: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 50, (count, length), generator=torch.Generator().manual_seed(seed))


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
