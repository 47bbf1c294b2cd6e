"""The zoo's own judgement: what plain autograd keeps, what gradients differ by, what the runtime held, rows in a file."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.zoo import measure
from benchmarks.zoo import rows as zoo_rows
from benchmarks.zoo.compressed import Counted, Runtime
from benchmarks.zoo.data import MASK, continued, masked_bytes, next_bytes, pictures
from benchmarks.zoo.gradients import ALL, Comparison, LayerError, Tally, compared, layer_error
from benchmarks.zoo.kept import kept_by_autograd, storages
from benchmarks.zoo.models import ZOO, ZooModel, loss_outside, sgd
from benchmarks.zoo.rows import WARM, Held, InTurn, Row, Rows, Times
from benchmarks.zoo.table import HEAD, cells, layers, readers, summary, table
from benchmarks.zoo.training import Training, passed

WIDE = 256


def network() -> nn.Module:
    """Two linear layers with a ReLU between, for pictures of 8 x 8."""
    return nn.Sequential(nn.Flatten(), nn.Linear(192, WIDE), nn.ReLU(), nn.Linear(WIDE, 10))


def small() -> ZooModel:
    return ZooModel("timm", "cnn", network, lambda number: pictures(number, 512, 8), loss_outside, sgd)


@pytest.fixture
def training() -> Training:
    return Training(small(), "float32")


def test_what_autograd_keeps_is_counted_once_and_without_weights_and_batch(training):
    batch = training.batch(0)
    kept = kept_by_autograd(lambda: training.loss(batch), training.held(batch))
    # The ReLU's output, saved by it and by the next layer; log_softmax's output; cross entropy's total weight of the labels.
    assert kept.total == 512 * WIDE * 4 + 512 * 10 * 4 + 4
    assert kept.weights == 0
    assert kept.node == "ReluBackward0", "it reads as much as the layer behind it, and comes later in the alphabet"
    assert kept.largest == 512 * WIDE * 4
    assert kept.readers["AddmmBackward0 + ReluBackward0"] == 512 * WIDE * 4
    assert sum(kept.readers.values()) == kept.total


def test_the_batch_counts_where_nobody_says_that_it_is_held(training):
    batch = training.batch(0)
    own = storages([*training.module.parameters(), *training.module.buffers()])
    kept = kept_by_autograd(lambda: training.loss(batch), own)
    held = kept_by_autograd(lambda: training.loss(batch), training.held(batch))
    assert kept.total - held.total == 512 * 192 * 4 + 512 * 8


def test_autocast_s_copies_of_weights_are_told_apart():
    training = Training(small(), "autocast")
    batch = training.batch(0)
    kept = kept_by_autograd(lambda: training.loss(batch), training.held(batch))
    assert kept.weights == 10 * WIDE * 2, "the first layer's is not read: nobody wants the batch's gradient"


def test_a_graph_that_is_thrown_away_in_the_pass_forward_is_not_kept():
    weight = torch.ones(1000, requires_grad=True)

    def loss():
        (weight.exp() * 2).sum()
        return (weight * weight).exp().sum()

    assert kept_by_autograd(loss, storages([weight])).total == 4000


def test_hooks_and_the_allocator_agree_on_what_plain_autograd_keeps(training):
    batch = training.batch(0)
    kept = kept_by_autograd(lambda: training.loss(batch), training.held(batch))
    live, peak = passed(training, batch)
    assert kept.total <= live <= kept.total + 64, "the loss itself lives as well"
    assert peak > live + 512 * WIDE * 4, "gradients"


def test_errors_that_are_the_same_in_each_batch_have_all_in_common():
    torch.manual_seed(0)
    shift = torch.randn(50)
    same, apart = Tally(), Tally()
    for _ in range(400):
        g = torch.randn(50)
        same.add(g, g + 0.1 * shift)
        apart.add(g, g + 0.1 * torch.randn(50))
    one, other = (layer_error("x", tally, tally.sums(), 400, 4 * tally.squares) for tally in (same, apart))
    assert one.common == pytest.approx(1)
    assert other.common == pytest.approx(1 / 20, rel=0.3)
    assert other.error == pytest.approx(0.1, rel=0.05)
    assert other.spread == pytest.approx(1, rel=0.05)
    assert other.worst > other.error
    assert other.size == pytest.approx(1 / 2)


def test_batches_with_equal_gradients_have_no_spread():
    tally = Tally()
    for _ in range(5):
        tally.add(torch.ones(3), torch.ones(3))
    found = layer_error("x", tally, tally.sums(), 5, tally.squares)
    assert (found.error, found.spread, found.common) == (0, pytest.approx(0, abs=1e-7), 0)
    assert layer_error("x", Tally(), (0.0, 0.0), 5, 1.0) is None


def test_a_gradient_error_is_what_was_put_in(training):
    def ours(number):
        # What is added to the loss moves no weight but this one, and by so much; its value is zero.
        weight = training.module[3].bias
        return training.loss(training.batch(number)) + 0.5 * (weight - weight.detach()).sum()

    comparison = compared(training.module, lambda n: training.loss(training.batch(n)), ours, range(4))
    found = {one.name: one for one in comparison.layers}
    assert (comparison.batches, comparison.equal) == (4, 4)
    assert found["1.weight"].error == 0
    assert found["3.bias"].common == pytest.approx(1)
    assert found["3.bias"].error > 1
    assert 0 < found[ALL].error < found["3.bias"].error
    assert found[ALL].common == pytest.approx(1)
    assert all(weight.grad is None for weight in training.module.parameters())


def test_another_pass_forward_is_noticed(training):
    def ours(number):
        return training.loss(training.batch(number + (number == 2)))

    found = compared(training.module, lambda n: training.loss(training.batch(n)), ours, range(4))
    assert (found.batches, found.equal) == (4, 3)


def test_both_passes_draw_the_same_random_numbers(training):
    training.module.insert(2, nn.Dropout(0.5))
    loss = lambda n: training.loss(training.batch(n))  # noqa: E731
    found = compared(training.module, loss, loss, range(3))
    assert found.equal == 3
    assert {one.error for one in found.layers} == {0.0}


def test_batches_are_those_of_their_number():
    for make in (next_bytes, masked_bytes, continued):
        one, again, other = make(1, 4, 32), make(1, 4, 32), make(2, 4, 32)
        assert all(torch.equal(one[name], again[name]) for name in one)
        assert not torch.equal(one["input_ids"], other["input_ids"])
        assert one["input_ids"].shape == one["labels"].shape == (4, 32)
    assert pictures(0, 4, 16)["pixels"].shape == (4, 3, 16, 16)


def test_a_masked_byte_is_the_one_to_be_guessed():
    batch = masked_bytes(0, 8, 64)
    hidden = batch["input_ids"] == MASK
    assert 0 < hidden.float().mean() < 0.3
    assert torch.equal(hidden, batch["labels"] >= 0)


def test_a_row_is_measured_and_counts_all(monkeypatch):
    monkeypatch.setitem(ZOO, "small", small())
    monkeypatch.setattr(measure, "BATCHES", 4)
    row = measure.measured("small", "float32", "default", 0.01)
    assert row.parameters == 192 * WIDE + WIDE + WIDE * 10 + 10
    assert row.ratio > 3, "one tensor, which a linear layer reads"
    assert row.kept.plain == pytest.approx(row.counted, abs=64)
    assert row.kept.first < row.kept.plain
    assert WARM * row.kept.after / 2 < row.kept.warm < WARM * row.kept.plain
    assert row.told.saved < row.told.plain < row.kept.plain, "the loss's own is not told of"
    assert row.held.begins < row.held.most <= row.held.begins + row.held.largest + 512 * 192 * 4
    assert row.gradients.equal == row.gradients.batches == 4
    errors = {one.name: one.error for one in row.gradients.layers}
    assert 0 < errors["3.weight"] < 0.1
    assert errors["1.bias"] == 0
    assert min(row.times.plain, row.times.ours, row.times.measured) > 0


def test_the_runtime_tells_what_it_holds_now_and_held_at_most_since_the_last_step(training):
    runtime = Runtime("default", 0.01)
    loss = training.loss(training.batch(0), runtime.forwards)
    held = runtime.held
    loss.backward()
    assert runtime.most > held > 0
    assert runtime.held < held
    training.optimizer.step()
    assert runtime.most == runtime.held
    runtime.close()


LAYERS = [
    LayerError(ALL, 0.02, 0.03, 0.5, 0.1, 1.0),
    LayerError("0.weight", 0.04, 0.05, 0.6, 0.1, 0.9),
    LayerError("keys.bias", 0.99, 1.0, 1.0, 0.1, 1e-9),
]
ROW = Row(
    "small", "float32", "default", 0.01, "cnn", 10, InTurn(1000, 500, 1800, 200), 990, 0, Held(180, 300, 100, "AddmmBackward0"),
    Counted(900, 190, {}), InTurn(2000, 1500, 1600, 900), Times(1.0, 2.0, 34.0, 0.9), Comparison(20, 20, LAYERS),
    {"AddmmBackward0": 990},
)  # fmt: skip


def test_figures_of_a_row():
    assert ROW.ratio == 5
    assert ROW.ratio_with_warm == pytest.approx(6000 / 1800)
    assert ROW.held.excess == pytest.approx(1.2)
    assert ROW.times.slower == pytest.approx(3)


@pytest.fixture
def kept_rows(tmp_path, monkeypatch):
    """Opens a file of rows anew, each of which is only noted as measured."""
    monkeypatch.setitem(ZOO, "small", small())
    monkeypatch.setattr(zoo_rows, "version", lambda library: "1.0")
    asked = []

    def measured(name, dtype, setting, target):
        asked.append((name, dtype))
        return replace(ROW, dtype=dtype)

    return asked, lambda: Rows(str(tmp_path / "rows.jsonl"), measured)


def test_rows_are_kept_and_not_measured_again(kept_rows):
    asked, opened = kept_rows
    for _ in range(2):
        rows = opened()
        assert rows.row("small", "float32", "default", 0.01) == ROW
        assert rows.row("small", "autocast", "default", 0.01).dtype == "autocast"
    assert asked == [("small", "float32"), ("small", "autocast")]


@pytest.mark.parametrize(("what", "other"), [("version", lambda library: "2.0"), ("fingerprint", lambda: "another runtime")])
def test_rows_of_other_versions_are_measured_anew(kept_rows, monkeypatch, what, other):
    asked, opened = kept_rows
    opened().row("small", "float32", "default", 0.01)
    monkeypatch.setattr(zoo_rows, what, other)
    opened().row("small", "float32", "default", 0.01)
    assert len(asked) == 2


def test_the_table_says_what_is_missed():
    good = cells(ROW)
    bad = cells(replace(ROW, kept=replace(ROW.kept, after=999), held=replace(ROW.held, most=999)))
    assert len(good) == len(HEAD)
    assert not any("missed" in cell for cell in good)
    assert [HEAD[place] for place, cell in enumerate(bad) if "missed" in cell] == ["aim", "held MB"]
    assert len(list(table([ROW, ROW]))) == 4


def test_the_worst_layer_is_none_that_rounding_alone_makes():
    assert cells(ROW)[HEAD.index("worst layer")] == "4.00% / 60% 0.weight"
    assert cells(ROW)[HEAD.index("gradient")] == "2.00% / 50%"


def test_times_beside_other_work_are_marked_and_not_summed():
    busy = replace(ROW, times=replace(ROW.times, ours=100.0, load=4.0))
    assert "busy" in cells(busy)[HEAD.index("step")]
    assert "busy" not in cells(ROW)[HEAD.index("step")]
    assert "- step: the median of 1 models takes 3.00 times as long (aim: 2.5)" in summary([ROW, busy])


def test_the_summary_counts_what_is_reached():
    other = replace(ROW, gradients=replace(ROW.gradients, equal=19), kept=replace(ROW.kept, after=999))
    found = list(summary([ROW, other]))
    assert found[0] == "- kept: 1 of 2 reach their aim"
    assert found[-1] == "- losses: 1 of 2 with all of them the same to the last bit"
    assert list(summary([])) == []


def test_readers_and_layers_are_shown_for_a_row():
    assert list(readers(ROW))[1:] == ["- 0.00 MB, 100%: AddmmBackward0"]
    assert [line.split(" | ")[0] for line in list(layers(ROW))[3:]] == ["| all layers", "| 0.weight", "| keys.bias"]
