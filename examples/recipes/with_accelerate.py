"""Hugging Face Accelerate: the forward pass of its usual loop runs inside of `compression`."""

import torch
from accelerate import Accelerator
from digits import batches, network
from torch.nn import functional as F

from kompakt_runtime import compression


def train(steps: int = 12):
    """Returns what was saved, layer by layer."""
    accelerator = Accelerator()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, data = accelerator.prepare(model, optimizer, batches(steps))
    for pixels, labels in data:
        optimizer.zero_grad()
        with compression(target=0.01):
            loss = F.cross_entropy(model(pixels), labels)
        accelerator.backward(loss)
        optimizer.step()
    return compression(target=0.01).report()


if __name__ == "__main__":
    print(train())
