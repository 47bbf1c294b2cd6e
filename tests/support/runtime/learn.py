"""A small training for `kompakt run --compare`, without seeds of its own: `learn.py STEPS [WORD...]`.

Words: closure (gradients are made inside of the optimizer's step), clipped, broken (bounds 30 times too wide), restless (other
weights in each process), unsteady (other batches in each process).
"""

import os
import random
import sys
from typing import Any

import torch
from torch import nn


def broken() -> None:
    """Packs with bounds that are 30 times as wide as the runtime asks for."""
    entry: Any = sys.modules.get("kompakt_runtime.saved.entry")
    if entry is not None:
        encode = entry.encode
        entry.encode = lambda x, bound, **more: encode(x, 30 * bound, **more)


def main(steps: int, words: list[str]) -> None:
    torch.set_num_threads(1)
    if "restless" in words:
        torch.manual_seed(os.getpid())
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if "unsteady" in words:
        torch.manual_seed(os.getpid())
    if "broken" in words:
        broken()

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        x = torch.randn(256, 64) + random.random()
        found = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        found.backward()
        if "clipped" in words:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return found

    for _ in range(steps):
        if "closure" in words:
            optimizer.step(loss)
        else:
            loss()
            optimizer.step()
    print("trained", steps)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
