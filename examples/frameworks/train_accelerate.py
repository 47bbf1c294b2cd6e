"""A residual network of linear layers learns scikit-learn's handwritten digits in a loop with Hugging Face Accelerate."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def digits() -> tuple[DataLoader, DataLoader]:
    scans = load_digits()
    pixels, labels = torch.tensor(scans.data, dtype=torch.float32) / 16, torch.tensor(scans.target)
    train, test = train_test_split(range(len(labels)), test_size=0.3, random_state=0, stratify=scans.target)
    return (
        DataLoader(TensorDataset(pixels[train], labels[train]), batch_size=128, shuffle=True),
        DataLoader(TensorDataset(pixels[test], labels[test]), batch_size=270),
    )


def main() -> None:
    set_seed(0)
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(64, 256), Residual(256), Residual(256), Residual(256), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, *digits())
    for epoch in range(6):
        model.train()
        for pixels, labels in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(pixels), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = [accelerator.gather_for_metrics(model(pixels).argmax(1) == labels) for pixels, labels in test]
        accuracy = 100 * torch.cat(right).float().mean().item()
        accelerator.print(f"epoch {epoch + 1}  loss {loss.item():.4f}  test accuracy {accuracy:.2f} %")
    accelerator.end_training()


if __name__ == "__main__":
    main()
