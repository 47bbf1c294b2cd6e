"""Handwritten digits (scikit-learn's, 8x8 pixels) and a small network, for the recipes beside this file."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    """(1797, 64) pixels in 0..1 and their labels."""
    scans = load_digits()
    return torch.tensor(scans.data, dtype=torch.float32) / 16, torch.tensor(scans.target)


def batches(steps: int) -> DataLoader:
    """Batches of 128 scans, `steps` of them (at most 14)."""
    pixels, labels = tensors()
    return DataLoader(TensorDataset(pixels[: 128 * steps], labels[: 128 * steps]), batch_size=128, shuffle=True, drop_last=True)


class Named(Dataset):
    """Each scan as a dictionary."""

    def __init__(self) -> None:
        self.pixels, self.labels = tensors()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"pixels": self.pixels[place], "labels": self.labels[place]}


def network() -> nn.Sequential:
    """(batch, 64) to (batch, 10)."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
