"""The Trainer of Hugging Face Transformers: `compute_loss`, its forward pass, runs inside of `compression`."""

import tempfile

from digits import Named, network
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from kompakt_runtime import compression


class Compressed(Trainer):
    def compute_loss(self, *args, **kwargs):
        with compression(target=0.01):
            return super().compute_loss(*args, **kwargs)


class Classifier(nn.Module):
    """What a Trainer expects: named inputs, and a loss among the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, pixels, labels):
        logits = self.layers(pixels)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def train(steps: int = 12):
    """Returns what was saved, layer by layer."""
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=128, report_to="none", save_strategy="no", disable_tqdm=True
        )
        Compressed(model=Classifier(), args=settings, train_dataset=Named()).train()
    return compression(target=0.01).report()


if __name__ == "__main__":
    print(train())
