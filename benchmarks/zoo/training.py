"""A model of the zoo in training, one pass or step at a time, and the bytes that are live meanwhile."""

import contextlib
import copy
import time
from contextlib import AbstractContextManager
from typing import Any, Final

import torch

from benchmarks.batch import live, mark
from benchmarks.zoo.data import Batch
from benchmarks.zoo.kept import storages
from benchmarks.zoo.models import ZooModel

Tensor = Any
Around = AbstractContextManager[Any]  # what passes forward run in

NOTHING: Final[Around] = contextlib.nullcontext()


class Training:
    """One model and its optimizer, which computes in one of `accuracy_tasks.DTYPES`."""

    def __init__(self, model: ZooModel, dtype: str) -> None:
        torch.manual_seed(0)
        self._what, self._dtype = model, dtype
        self.module = model.build().train()
        if dtype == "bfloat16":
            self.module.to(torch.bfloat16)
        self.optimizer = model.optimizer(self.module.parameters())

    def another(self) -> "Training":
        """The same weights, to train apart from this one."""
        other = copy.copy(self)
        other.module = copy.deepcopy(self.module)
        other.optimizer = self._what.optimizer(other.module.parameters())
        return other

    def batch(self, number: int) -> Batch:
        batch = self._what.batch(number)
        narrow = self._dtype == "bfloat16"
        return {name: t.bfloat16() if narrow and t.is_floating_point() else t for name, t in batch.items()}

    def loss(self, batch: Batch, around: Around = NOTHING) -> Tensor:
        with around, torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._dtype == "autocast"):
            return self._what.loss(self.module, batch)

    def held(self, batch: Batch) -> frozenset[int]:
        """Storages that training holds anyway."""
        return storages([*self.module.parameters(), *self.module.buffers(), *batch.values()])


def passed(training: Training, batch: Batch, around: Around = NOTHING) -> tuple[int, int]:
    """Live bytes after a pass forward, and the most in it and in the pass backward, which leaves gradients."""
    training.optimizer.zero_grad()

    def both() -> None:
        loss = training.loss(batch, around)
        mark()
        loss.backward()

    held, _, highest = live(both)
    assert len(held) == 1, "something else has the mark's size"
    return held[0], highest


def stepped(training: Training, batch: Batch, around: Around = NOTHING) -> float:
    """One training step; its processor time in seconds."""
    begun = time.thread_time()
    training.optimizer.zero_grad()
    training.loss(batch, around).backward()
    training.optimizer.step()
    return time.thread_time() - begun
