"""A training script as users write them, for processes of their own: `train.py BATCH STEPS [WORDS...]`."""

import os
import sys

import torch
from torch import nn

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 256, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    try:
        for step in range(int(sys.argv[2])):
            optimizer.zero_grad()
            model(torch.randn(int(sys.argv[1]), 3, 16, 16)).square().mean().backward()
            optimizer.step()
            print("step", step, sys.argv[3:], flush=True)
            if step == 11 and "FAIL" in os.environ:
                from kompakt_runtime.hooks import pair as hooks

                hooks.is_parameter = None  # type: ignore[attr-defined, assignment]
    finally:
        print("saved a model")
