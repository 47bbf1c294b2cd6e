"""A small ResNet of timm learns scikit-learn's handwritten digits."""

import timm
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch.nn import functional as F

EPOCHS = 4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def digits() -> list[torch.Tensor]:
    """Scans of 32x32 pixels and their labels: those to train on, those to test on."""
    scans = load_digits()
    pixels = F.interpolate(torch.tensor(scans.images, dtype=torch.float32)[:, None] / 16, 32, mode="bilinear")
    split = train_test_split(pixels, torch.tensor(scans.target), test_size=0.3, random_state=0, stratify=scans.target)
    return [part.to(DEVICE) for part in split]


def main() -> None:
    torch.manual_seed(0)
    pixels, test_pixels, labels, test_labels = digits()
    model = timm.create_model("resnet10t", in_chans=1, num_classes=10, channels=(16, 32, 32, 64)).to(DEVICE)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=EPOCHS)
    for epoch in range(EPOCHS):
        model.train()
        for batch in torch.randperm(len(pixels)).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(pixels[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        schedule.step(epoch + 1)
        model.eval()
        with torch.no_grad():
            accuracy = 100 * (model(test_pixels).argmax(1) == test_labels).float().mean().item()
        print(f"epoch {epoch + 1}  loss {loss.item():.4f}  test accuracy {accuracy:.2f} %", flush=True)


if __name__ == "__main__":
    main()
