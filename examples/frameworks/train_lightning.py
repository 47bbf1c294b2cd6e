"""A convolutional network with batch norms learns scikit-learn's handwritten digits with Lightning."""

import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def block(channels: int, more: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, more, 3, padding=1, bias=False), nn.BatchNorm2d(more), nn.ReLU()]


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        body = [*block(1, 32), *block(32, 32), nn.MaxPool2d(2), *block(32, 64), nn.Flatten(), nn.Dropout(0.2)]
        self.network = nn.Sequential(*body, nn.Linear(64 * 16, 10))

    def training_step(self, batch, _number):
        pixels, labels = batch
        return F.cross_entropy(self.network(pixels), labels)

    def validation_step(self, batch, _number):
        pixels, labels = batch
        scores = self.network(pixels)
        self.log("loss", F.cross_entropy(scores, labels), sync_dist=True)
        self.log("accuracy", 100 * (scores.argmax(1) == labels).float().mean(), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        shown = {name: value.item() for name, value in self.trainer.callback_metrics.items()}
        self.print(f"epoch {self.current_epoch + 1}  test loss {shown['loss']:.4f}  test accuracy {shown['accuracy']:.2f} %")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def digits() -> tuple[DataLoader, DataLoader]:
    scans = load_digits()
    pixels, labels = torch.tensor(scans.images, dtype=torch.float32)[:, None] / 16, torch.tensor(scans.target)
    train, test = train_test_split(range(len(labels)), test_size=0.3, random_state=0, stratify=scans.target)
    return (
        DataLoader(TensorDataset(pixels[train], labels[train]), batch_size=64, shuffle=True),
        DataLoader(TensorDataset(pixels[test], labels[test]), batch_size=270),
    )


if __name__ == "__main__":
    lightning.seed_everything(0)
    quiet = {"logger": False, "enable_model_summary": False, "enable_progress_bar": False, "num_sanity_val_steps": 0}
    trainer = lightning.Trainer(max_epochs=3, enable_checkpointing=False, **quiet)
    trainer.fit(Classifier(), *digits())
