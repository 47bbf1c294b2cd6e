"""Do models of others learn the same under compression? Pairs of trainings of one seed; `python -m benchmarks.zoo.accuracy`.

Three of them: a convolutional network of timm and a vision transformer of timm, on digits; a Llama of transformers with more than
30 million weights, in which outlier channels 100 times larger than the others are planted, on bytes of Python's standard library.
What is trained, compared and printed is as in `benchmarks.accuracy`: mean difference to plain training over seeds with its 90 %
interval, in points of accuracy and hundredths of the loss of guessing. The runtime is as it comes: nothing is set but the mode.

Each training's outcome is added to the file --record; a run that was stopped goes on with the seed where it stopped.
"""

import argparse
import platform
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

import torch
from torch import nn

from benchmarks.accuracy import Record, compare
from benchmarks.accuracy_codecs import AS_IT_COMES, CODECS
from benchmarks.accuracy_tasks import BYTES, DTYPES, Data, Task, digits, sgd, text
from benchmarks.zoo.compressed import DENOMINATOR
from benchmarks.zoo.data import enlarged
from benchmarks.zoo.models import CLASSES, adamw, of_timm, of_transformers
from benchmarks.zoo.outliers import plant_in_llama

Tensor = Any

PIXELS: Final = 32
WINDOWS: Final = 800  # of the text's, to train on
CHANNELS: Final = (7, 101, 260, 411)  # of 512: under 1 %, as found in trained models
FACTOR: Final = 100.0


class Logits(nn.Module):  # type: ignore[misc]  # torch is looked at without its types
    """A model of transformers that answers with its logits alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> Tensor:
        return self.model(input_ids=rows).logits


@cache
def large_digits() -> Data:
    """The digits as a square of PIXELS, in three equal colours."""
    data = digits()
    return Data((enlarged(data.train[0], PIXELS), data.train[1]), (enlarged(data.test[0], PIXELS), data.test[1]))


@cache
def some_text() -> Data:
    data = text()
    return Data((data.train[0][:WINDOWS], data.train[1][:WINDOWS]), data.test)


def llama() -> Logits:
    """31.9 million weights."""
    model = of_transformers(
        "LlamaForCausalLM", "LlamaConfig", vocab_size=BYTES, hidden_size=512, intermediate_size=1376, num_hidden_layers=10,
        num_attention_heads=8, max_position_embeddings=128, use_cache=False,
    )  # fmt: skip
    return Logits(plant_in_llama(model, CHANNELS, FACTOR))


CNN: Final = partial(of_timm, "mobilenetv3_large_100")
VIT: Final = partial(of_timm, "vit_tiny_patch16_224", img_size=PIXELS, patch_size=8, embed_dim=96)
TASKS: Final = {
    "cnn": Task("mobilenetv3_large_100 of timm, digits", CNN, large_digits, sgd, CLASSES, 8, 64, 20, warmup=0.1),
    "vit": Task("vit_tiny of timm, 96 wide, digits", VIT, large_digits, adamw, CLASSES, 12, 64, 10, warmup=0.1),
    "outliers": Task("Llama with planted outlier channels, source code", llama, some_text, adamw, BYTES, 1, 4, 5, warmup=0.1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=list(TASKS))
    parser.add_argument("--codecs", choices=CODECS, nargs="+", default=list(AS_IT_COMES))
    parser.add_argument("--seeds", type=int, help="default: the task's own number; at least 2")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--record", help="file to add each training's outcome to, and not to repeat what it has")
    given = parser.parse_args()
    if given.seeds is not None and given.seeds < 2:
        parser.error("--seeds must be at least 2: one pair has no spread")
    torch.set_num_threads(1)
    print(f"{platform.machine()}, one thread, torch {torch.__version__}; all: {DENOMINATOR}, warm-up in it")
    for name in given.tasks:
        task = replace(TASKS[name], dtype=given.dtype)
        compare(task, given.codecs, given.seeds or task.seeds, task.epochs, Record(given.record))


if __name__ == "__main__":
    main()
