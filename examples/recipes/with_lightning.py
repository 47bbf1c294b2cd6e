"""Lightning: the forward pass in `training_step` runs inside of `compression`."""

import lightning
import torch
from digits import batches, network
from torch.nn import functional as F

from kompakt_runtime import compression


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def training_step(self, batch, _number):
        pixels, labels = batch
        with compression(target=0.01):
            return F.cross_entropy(self.layers(pixels), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def train(steps: int = 12):
    """Returns what was saved, layer by layer."""
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_steps=steps, **settings)
    trainer.fit(Classifier(), batches(steps))
    return compression(target=0.01).report()


if __name__ == "__main__":
    print(train())
