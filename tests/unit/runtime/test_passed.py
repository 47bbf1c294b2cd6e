"""What passes through counts in the ratio: each storage once, by reason, and no parameter."""

import pytest
import torch
from torch import nn

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.hooks import pair as hooks
from kompakt_runtime.report.text import Report
from tests.support.runtime.small_training import INPUT, Holder, batch, gradients, network

# The compiler itself looks at .grad of a tensor that enters a compiled region in the middle of a model.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
BYTES = 4 * torch.Size(INPUT).numel()


class Own(torch.Tensor):
    """A tensor of a class of its own."""


class Compiled(nn.Module):
    """A small input of a large weight, in a compiled region."""

    def __init__(self) -> None:
        super().__init__()
        self.region = nn.Linear(16, 1024, bias=False)
        self.region.compile(backend="aot_eager")

    def forward(self, x):
        return self.region(2 * x.flatten(1)[:, :16])


def squared(model, x):
    """Its product saves one storage twice, as tensors of another class."""
    own = (x * 1).as_subclass(Own)
    return model(x) + (own * own).sum().as_subclass(torch.Tensor)


def test_a_tensor_of_another_class_counts_once(running):
    plain, ours = running(mode="Lossless"), Holder(network(), lambda model, x: model(x))
    gradients(ours, batch())
    before = (plain.figures.plain_bytes, plain.figures.saved_bytes)
    plain.stop()
    session = running(mode="Lossless")
    gradients(Holder(network(), squared), batch())
    figures = session.figures
    assert figures.raw_bytes["NotPlainTensor"] == BYTES
    assert (figures.plain_bytes - before[0], figures.saved_bytes - before[1]) == (BYTES, BYTES)


def test_what_nobody_reads_back_does_not_count(running):
    session = running()
    Holder(network(), squared)(batch().requires_grad_())
    assert (session.figures.raw["NotPlainTensor"] > 0, session.figures.plain_bytes) == (True, 0)


def test_a_second_backward_pass_counts_nothing_again(running):
    session = running()
    loss = Holder(network(), squared)(batch().requires_grad_()).square().sum()
    loss.backward(retain_graph=True)
    once = session.figures.raw_bytes["NotPlainTensor"]
    loss.backward()
    assert session.figures.raw_bytes["NotPlainTensor"] == once == BYTES


def test_what_the_compiler_saved_counts_without_the_weights(running):
    session, model = running(), Compiled()
    gradients(model, batch())
    assert session.figures.raw_bytes["Compiled"] == 4 * 8 * 16, "the layer's input, and not its weight of 65,536 bytes"


def test_a_device_that_nobody_tried_counts_all(running, monkeypatch):
    monkeypatch.setattr(hooks, "untried", lambda device: "MPS")
    session = running()
    gradients(network(), batch())
    figures = session.figures
    assert figures.plain_bytes == figures.saved_bytes == figures.raw_bytes["MPS"] > 0


def test_reasons_are_told_with_their_bytes():
    figures = Figures(plain_bytes=4_000_000, saved_bytes=4_000_000, forwards=1, steps=1)
    figures.count_kept("ValuesNeeded", 3_000_000)
    figures.count_raw("Compiled")
    figures.count_passed("Compiled", 1_000_000)
    figures.count_raw("HookFailedError")
    report = Report.of_rows(RuntimeConfig("ErrorBounded"), [export.report(figures)])
    (note,) = report.notes()
    assert note == "kept as it is: ValuesNeeded 1 (3.00 MB), Compiled 1 (1.00 MB), HookFailedError 1"
    assert report.plain_bytes == 5_000_000
