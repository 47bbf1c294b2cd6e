"""Gradient errors by feature, where a few features are a hundred times larger; `python -m benchmarks.outlier_channels`.

A linear layer without a bias is trained by AdamW on inputs with planted outlier features, as large transformers have them
(Dettmers et al., NeurIPS 2022, arXiv 2208.07339), and random gradients at its output. Then one input is packed in three ways, at
one target: with one bound from the mean |momentum| of all coordinates, with one from the step in each coordinate, and with bounds
by feature. "error": root mean square of what that does to a feature's gradients over that of these gradients, of the middle
feature of its kind; "of the step": root mean square of what it does to the step over the mean |step|.
"""

import argparse
import math
from collections.abc import Iterator
from typing import Any

import torch

from kompakt_runtime.bounds.spread import Spread
from kompakt_runtime.bounds.targets import error_of_a_step, mean_momentum
from kompakt_runtime.codec import Channels, Packed, decode, encode
from kompakt_runtime.codec.features import feature_bounds

Tensor = Any
ROWS, FEATURES, OUTPUTS, STEPS, MEAN_OF = 4096, 256, 128, 100, 10
HEAD = ("type", "bounds", "error, outliers", "error, others", "of the step", "bits an element")


class Planted:
    """large: how many features are `factor` times larger."""

    def __init__(self, dtype: Any, large: int, factor: float) -> None:
        torch.manual_seed(0)
        self.dtype, self.large = dtype, torch.arange(FEATURES) % (FEATURES // large) == 3
        self.sizes = torch.where(self.large, factor, 1.0)
        self.weight = torch.nn.Parameter(torch.randn(OUTPUTS, FEATURES).to(dtype))
        self.optimizer = torch.optim.AdamW([self.weight], lr=0.0)
        for _ in range(STEPS):
            x, delta = self.batch()
            self.weight.grad = delta.T @ x
            self.optimizer.step()

    def batch(self) -> tuple[Tensor, Tensor]:
        return (torch.randn(ROWS, FEATURES) * self.sizes).to(self.dtype), torch.randn(ROWS, OUTPUTS).to(self.dtype)

    def packed(self, target: float) -> Iterator[tuple[str, Packed]]:
        spread = Spread(0, self.delta.float().square().sum(0), self.x.count_nonzero(0))
        found = error_of_a_step(self.optimizer, self.weight, spread)
        wide, narrow = (self._bound(target * float(size)) for size in (mean_momentum(self.optimizer, self.weight), found.size))
        yield "one, mean momentum", encode(self.x, wide)
        yield "one, step", encode(self.x, narrow)
        bounds = feature_bounds(0, found.harm, spread.columns)
        if bounds is not None:
            yield "by feature", encode(self.x, narrow * bounds.widest, channels=Channels(bounds.depths, 1))

    def _bound(self, sigma: float) -> float:
        bound = sigma * math.sqrt(3 * OUTPUTS / float(self.delta.float().square().sum()))
        return min(bound, float(self.x.float().abs().mean()))

    def rows(self, target: float) -> Iterator[tuple[str, ...]]:
        self.x, self.delta = self.batch()
        state = self.optimizer.state[self.weight]
        root, momentum = state["exp_avg_sq"].float().sqrt(), MEAN_OF * state["exp_avg"].float()
        gradient = self.delta.float().T @ self.x.float()
        for name, packed in self.packed(target):
            moved = self.delta.float().T @ (decode(packed).float() - self.x.float())
            errors = (moved.square().mean(0) / gradient.square().mean(0)).sqrt()
            step = (moved / root).square().mean().sqrt() / (momentum.abs() / root).mean()
            bits = f"{8 * packed.nbytes / self.x.numel():.2f}"
            shares = (errors[self.large].median(), errors[~self.large].median(), step)
            yield str(self.dtype).removeprefix("torch."), name, *(f"{float(share):.2%}" for share in shares), bits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--large", type=int, default=4, help="how many features are larger")
    parser.add_argument("--factor", type=float, default=100.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for dtype in (torch.float32, torch.bfloat16):
        for row in Planted(dtype, given.large, given.factor).rows(given.target):
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
