"""What a batch is suggested from: moments of a training whose memory is known to the byte, played to the watcher."""

import os
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

if "torch" not in os.environ.get("KOMPAKT_REQUIRE", ""):
    pytest.importorskip("torch", reason="torch is not installed: `make sync-torch`")

import torch
from torch import nn

from kompakt_runtime import headroom
from kompakt_runtime.figures import Figures

torch.optim.SGD([torch.zeros(1)])  # loads the compiler once, which takes seconds
HELD = 1 << 20
STEPS = 4


@dataclass
class Training:
    """Bytes: `gradients` of each weight, in the order of the backward pass; `forward` and `backward` what each operation needs
    for a sample; `more` times as much for activations in the first step; `state` an optimizer makes in its first step,
    `working` it needs in each; `left` a sample's bytes that are still held then.
    """

    gradients: list[int]
    forward: list[int]
    backward: list[int]
    more: float = 1.0
    state: int = 0
    working: int = 0
    left: int = 0
    now: int = 0
    peak: int = 0

    def levels(self, batch: int) -> list[list[int]]:
        """Of each step: what is held at each moment; forward pass, backward pass, optimizer."""
        return [self._step(batch, HELD + (self.state if step else 0), self.more if step == 0 else 1.0) for step in range(STEPS)]

    def _step(self, batch: int, fixed: int, more: float) -> list[int]:
        forward = [fixed + int(more * bytes_) * batch for bytes_ in accumulate(self.forward)]
        there = accumulate(self.gradients)
        backward = [fixed + g + int(more * bytes_) * batch for g, bytes_ in zip(there, self.backward, strict=True)]
        stepping = HELD + self.state + sum(self.gradients) + self.working + self.left * batch
        return [*forward, *backward, stepping]

    def need(self, batch: int) -> int:
        return max(map(max, self.levels(batch)))

    def to(self, level: int) -> None:
        self.now, self.peak = level, max(self.peak, level)

    def fits(self, limit: int) -> int:
        low, high = 0, 1 << 40
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.need(middle) <= limit else (low, middle)
        return low


@dataclass
class Watched:
    training: Training
    batch: int
    figures: Figures = field(default_factory=Figures)

    def suggested(self, monkeypatch, limit: int) -> int:
        """Plays the training's steps to the watcher."""
        training = self.training
        monkeypatch.setattr(headroom, "peak", lambda device: training.peak)
        monkeypatch.setattr(headroom, "held", lambda device: training.now)
        monkeypatch.setattr(headroom, "limit", lambda device, environ: limit)
        watcher = headroom.Headroom(self.figures)
        # The first to be reached by a backward pass is the last of the module.
        module = nn.ParameterList([torch.zeros(bytes_ // 4) for bytes_ in reversed(training.gradients)])
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for levels in training.levels(self.batch):
            self._step(watcher, module, optimizer, levels)
        return self.figures.suggested_batch

    def _step(self, watcher, module, optimizer, levels: list[int]) -> None:
        training, count = self.training, len(self.training.forward)
        training.now = HELD + (training.state if self.figures.steps else 0)
        training.peak = max(training.peak, training.now)
        watcher.entered(module, (torch.zeros(self.batch, 0),))
        for level in levels[:count]:
            training.to(level)
        for level, weight in zip(levels[count:-1], reversed(list(module)), strict=True):
            watcher.unpacking()
            training.to(level)
            weight.grad = torch.zeros_like(weight)
        training.now = levels[-1] - training.working - (0 if self.figures.steps else training.state)
        watcher.stepping()
        training.to(levels[-1])
        self.figures.steps += 1
        if self.training.state:
            for weight, bytes_ in zip(module, [self.training.state // 4, *[0] * len(module)], strict=False):
                optimizer.state[weight] = {"momentum_buffer": torch.zeros(bytes_)}
        watcher.stepped(optimizer)
        optimizer.zero_grad()


BYTES = st.integers(0, 1 << 14)
LAYERS = st.integers(1, 5).flatmap(
    lambda count: st.builds(
        Training,
        gradients=st.lists(st.integers(1, 1 << 12).map(lambda words: 4 * words), min_size=count, max_size=count),
        forward=st.lists(BYTES, min_size=1, max_size=4),
        backward=st.lists(BYTES, min_size=count, max_size=count),
        more=st.sampled_from([1.0, 1.25, 2.0]),
        state=st.integers(0, 1 << 14).map(lambda words: 4 * words),
        working=BYTES,
        left=st.integers(0, 64),
    )
)


@example(Training([4, 4, 4, 4, 556], [0], [0, 0, 0, 283, 0], state=580), 1, 1.0)  # below the optimizer's peak
@settings(max_examples=150, deadline=None)
@given(LAYERS, st.integers(1, 64), st.floats(1.0, 40.0))
def test_what_is_suggested_fits_whatever_the_moments_are(training, batch, more):
    limit = int(training.need(batch) * more)
    with pytest.MonkeyPatch.context() as monkeypatch:
        suggested = Watched(training, batch).suggested(monkeypatch, limit)
    assert suggested <= training.fits(limit)


def test_gradients_that_any_batch_has_are_not_taken_as_growing(monkeypatch):
    """As in a network for images: the last layers have most weights, the first ones, which a backward pass reaches last, the
    largest activations, and these make the peak. without a look at gradients 33 of 60 came out.
    """
    training = Training([1 << 19, 1 << 18, 1 << 14, 1 << 12], [4096] * 8, [40_000, 48_000, 64_000, 80_000], more=1.25)
    limit = training.need(60)
    assert training.fits(limit) == 60
    assert 57 <= Watched(training, 8).suggested(monkeypatch, limit) <= 60
    training.peak = 0
    monkeypatch.setattr(headroom, "_gradient_bytes", lambda weight: 0)
    assert Watched(training, 8).suggested(monkeypatch, limit) < 45


def test_a_peak_inside_the_optimizer_says_nothing_of_larger_batches(monkeypatch):
    training = Training([4096], [8192, 8192], [16384], working=1 << 24, left=8)
    limit = training.need(4000)
    exact = training.fits(limit)
    assert 0.95 * exact <= Watched(training, 64).suggested(monkeypatch, limit) <= exact
