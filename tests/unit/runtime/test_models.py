"""Kinds of models: whatever they save, only weight gradients of linear layers may move, and in mode Lossless none."""

import pytest
import torch
from torch import nn

from tests.support.runtime.small_training import compressing, failed


class Residual(nn.Module):
    """Two convolutions with batch norm around a shortcut, as in a ResNet; pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.conv, self.norm, self.head = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x):
        x = self.first(x)
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x)) + x), 2)
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(nn.Module):
    """A transformer block with pre-norm, dropout and scaled dot-product attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)


MODELS = {
    "residual": (Residual, (8, 3, 8, 8), {"conv.weight", "head.weight", "first.0.weight"}),
    "block": (Block, (4, 6, 16), {"qkv.weight", "out.weight", "mlp.0.weight", "mlp.3.weight"}),
    "encoder": (
        encoder,
        (4, 6, 16),
        {"linear1.weight", "linear2.weight", "self_attn.in_proj_weight", "self_attn.out_proj.weight"},
    ),
    "recurrent": (Recurrent, (4, 6, 16), {"head.weight"}),
}


def train(make, shape, mode: str | None):
    """Gradients of a fourth step, after three that renew bounds; the parameters stay as they are."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    with compressing(mode) as session:
        for step in range(4):
            torch.manual_seed(step)
            x = torch.randn(shape).requires_grad_()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            if step < 3:
                optimizer.step()
    return {**{name: weight.grad for name, weight in model.named_parameters()}, "input": x.grad}, session


@pytest.mark.parametrize("kind", MODELS)
def test_only_linear_weights_move(kind):
    make, shape, linear = MODELS[kind]
    (plain, _), (exact, _), (ours, session) = (train(make, shape, mode) for mode in (None, "Lossless", "ErrorBounded"))
    assert all(torch.equal(exact[name], plain[name]) for name in plain)
    assert not failed(session)
    assert session.figures.compressed > 0
    assert session.figures.violations == 0
    moved = {name for name in plain if not torch.equal(ours[name], plain[name])}
    assert moved <= linear
    assert all((ours[name] - plain[name]).norm() < 0.2 * plain[name].norm() for name in moved)
