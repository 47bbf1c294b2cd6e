"""Handwritten digits with PyTorch DistributedDataParallel: an ordinary training script.

Started by torchrun (`torchrun --nproc-per-node 2 train.py`) on any number of nodes. It runs on CPUs with gloo, one
thread per process. The data (1,797 real 8x8 scans) come with scikit-learn, nothing is downloaded.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def network() -> nn.Module:
    """Four convolutions and a linear layer: (batch, 1, 8, 8) pixels in 0..1 to (batch, 10) logits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 16, 10),
    )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """70 % of the scans to train on, 30 % (540 scans) to test on; the same split in every run."""
    scans = load_digits()
    pixels = torch.tensor(scans.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(scans.target)
    train, test = train_test_split(range(len(labels)), test_size=0.3, random_state=0, stratify=scans.target)
    return TensorDataset(pixels[train], labels[train]), TensorDataset(pixels[test], labels[test])


def train_epoch(model: nn.Module, batches: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """Mean loss of one pass over this rank's share of the training scans."""
    model.train()
    total = 0.0
    for pixels, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Share of correct answers in percent."""
    model.eval()
    pixels, labels = data.tensors
    return 100 * (model(pixels).argmax(dim=1) == labels).float().mean().item()


def train(epochs: int, batch_size: int, seed: int) -> None:
    """Trains with all other processes; rank 0 tells how it goes."""
    torch.manual_seed(seed)
    rank = dist.get_rank()
    scans, test = digits()
    sampler = DistributedSampler(scans, seed=seed)
    batches = DataLoader(scans, batch_size=batch_size, sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    if rank == 0:
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "none given")
        print(f"{dist.get_world_size()} processes, {len(scans)} scans to train on, GPUs of this pod: {gpus}", flush=True)
    started = time.monotonic()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, batches, optimizer)
        percent = accuracy(model.module, test)
        if rank == 0:
            print(f"epoch {epoch + 1:2d}  loss {loss:.4f}  test accuracy {percent:.2f} %", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"trained for {time.monotonic() - started:.1f} s", flush=True)
        print(f"test accuracy {percent:.2f} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch-size", type=int, default=16, help="scans per process and step")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(**vars(parser.parse_args()))
    # The model is gone: nothing but the group holds its threads, and they end here. PyTorch aborts where one of them still
    # releases a tensor while the interpreter ends (pytorch/pytorch#190489).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
