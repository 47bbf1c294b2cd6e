"""What a batch is suggested from: moments of a training whose memory is known to the byte, played to the watcher."""

from dataclasses import dataclass, field, replace
from itertools import accumulate

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from kompakt_runtime.cost import headroom
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.uses.policy import Use

HELD = 1 << 20
STEPS = 4


@dataclass
class Training:
    """Bytes: `gradients` of each weight, in the order of the backward pass; `forward` and `backward` what each operation needs
    for a sample; `decoded` what it needs to have been read, and `after` what follows it; `packing` what reading takes whatever
    the batch is; `more` times as much for activations in the first step; `state` an optimizer makes in its first step, or has
    had before (`resumed`), `working` it needs in each; `left` a sample's bytes that are still held then.
    linear: an operation makes its weight's gradient itself, else it may come later, as from its `cast` to the weight's type;
    kept: gradients are set to zero, not dropped.
    """

    gradients: list[int]
    forward: list[int]
    backward: list[int]
    decoded: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    packing: int = 0
    more: float = 1.0
    state: int = 0
    working: int = 0
    left: int = 0
    linear: bool = False
    cast: bool = False
    kept: bool = False
    resumed: bool = False
    now: int = 0
    peak: int = 0

    def levels(self, batch: int) -> list[list[int]]:
        """Of each step: what is held at each moment; forward pass, three for each operation of the backward pass, optimizer."""
        return [self._step(batch, step) for step in range(STEPS)]

    def before(self, step: int) -> int:
        """What is held as a step begins."""
        there = self.state if step or self.resumed else 0
        return HELD + there + (sum(self.gradients) if step and self.kept else 0)

    def _step(self, batch: int, step: int) -> list[int]:
        fixed, more = self.before(step), self.more if step == 0 else 1.0
        levels = [fixed + int(more * bytes_) * batch for bytes_ in accumulate(self.forward)]
        for place, own in enumerate(self.gradients):
            there = 0 if step and self.kept else sum(self.gradients[:place])
            stays = 0 if step and self.kept else own
            each = (bytes_[place] if place < len(bytes_) else 0 for bytes_ in (self.decoded, self.backward, self.after))
            decoded, busy, after = (int(more * bytes_) * batch for bytes_ in each)
            reading, operating = decoded + self.packing * bool(decoded), busy + (own if self.linear and not self.cast else 0)
            levels += [fixed + there + reading, fixed + there + operating, fixed + there + stays + after]
        stepping = HELD + self.state + sum(self.gradients) + self.working + self.left * batch
        return [*levels, stepping]

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
        sizes = [bytes_ // 4 for bytes_ in reversed(training.gradients)]
        if training.linear:
            module = nn.ModuleList([nn.Linear(size, 1, bias=False) for size in sizes])
        else:
            module = nn.ParameterList([torch.zeros(size) for size in sizes])
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        if training.resumed:
            self._make_state(optimizer)
        for levels in training.levels(self.batch):
            self._step(watcher, module, optimizer, levels)
        return self.figures.suggested_batch

    def _step(self, watcher, module, optimizer, levels: list[int]) -> None:
        training, count = self.training, len(self.training.forward)
        training.to(training.before(self.figures.steps))
        watcher.entered(module, (torch.zeros(self.batch, 0),))
        for level in levels[:count]:
            training.to(level)
        for place, weight in enumerate(reversed(list(module.parameters()))):
            decoding, operating, after = levels[count + 3 * place : count + 3 * place + 3]
            watcher.unpacking()
            training.to(decoding)
            watcher.unpacked(Use.WEIGHT_GRADIENT, torch.float16 if training.cast else torch.float32)
            training.to(operating)
            weight.grad = torch.zeros_like(weight)
            training.to(after)
        makes = training.state if not self.figures.steps and not training.resumed else 0
        training.now = levels[-1] - training.working - makes
        watcher.stepping(optimizer)
        training.to(levels[-1])
        self.figures.steps += 1
        self._make_state(optimizer)
        watcher.stepped(optimizer)
        optimizer.zero_grad(set_to_none=not training.kept)

    def _make_state(self, optimizer) -> None:
        if self.training.state:
            weights = optimizer.param_groups[0]["params"]
            for weight, bytes_ in zip(weights, [self.training.state // 4, *[0] * len(weights)], strict=False):
                optimizer.state[weight] = {"momentum_buffer": torch.zeros(bytes_)}


BYTES = st.integers(0, 1 << 14)
LAYERS = st.integers(1, 5).flatmap(
    lambda count: st.builds(
        Training,
        gradients=st.lists(st.integers(1, 1 << 12).map(lambda words: 4 * words), min_size=count, max_size=count),
        forward=st.lists(BYTES, min_size=1, max_size=4),
        backward=st.lists(BYTES, min_size=count, max_size=count),
        decoded=st.lists(BYTES, min_size=count, max_size=count),
        after=st.lists(BYTES, min_size=count, max_size=count),
        packing=BYTES,
        more=st.sampled_from([1.0, 1.25, 2.0]),
        state=st.integers(0, 1 << 14).map(lambda words: 4 * words),
        working=BYTES,
        left=st.integers(0, 64),
        linear=st.booleans(),
        cast=st.booleans(),
        kept=st.booleans(),
        resumed=st.booleans(),
    )
)


@example(Training([4, 4, 4, 4, 556], [0], [0, 0, 0, 283, 0], state=580), 1, 1.0)  # below the optimizer's peak
@example(Training([1 << 20], [64], [8192], working=1 << 24, linear=True, kept=True), 64, 2.0)  # gradients that stay
@example(Training([4] * 3, [0], [0] * 3, [0, 5, 0], [0] * 3, state=8, kept=True, resumed=True), 1, 1.0)  # a state that was loaded
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


IN_THE_OPTIMIZER = Training([4096], [8192, 8192], [16384], working=1 << 24, left=8)
# At 8 samples the peak is late in the backward pass, beside a large gradient; at 1,000 at the end of the forward pass.
BELOW_THE_PEAK = Training([1 << 22, 4096], [8192, 8192], [6000, 6000], working=1 << 21, linear=True)
# The peak is where the first of four gradients is made: half as many bytes as all that grows.
IN_THE_MAKING = Training([1 << 19] * 4, [32_768] * 4, [150_000, 100_000, 50_000, 20_000], state=1 << 22, linear=True, more=1.02)


@pytest.mark.parametrize(
    ("training", "measured", "least", "most"),
    [
        pytest.param(IN_THE_OPTIMIZER, 64, 3800, 4000, id="a peak inside the optimizer says nothing of larger batches"),
        pytest.param(BELOW_THE_PEAK, 8, 950, 1000, id="a moment below the peak counts where it is the highest later"),
        pytest.param(IN_THE_MAKING, 8, 61, 64, id="a linear layer's gradient is not taken as growing while it is made"),
    ],
)
def test_of_what_fits_nearly_all_is_suggested(monkeypatch, training, measured, least, most):
    limit = training.need(most)
    assert least <= Watched(replace(training), measured).suggested(monkeypatch, limit) <= training.fits(limit) == most


def test_the_row_of_a_moment_below_the_peak_is_what_it_says():
    levels = BELOW_THE_PEAK.levels(8)[0]
    assert max(levels[2:-1]) > 2 * max(levels[:2])
