"""The accuracy benchmark's own judgement: intervals, the verdict, codes of fixed width, data that do not overlap."""

import math
from dataclasses import replace

import pytest
import torch

from benchmarks.accuracy import Outcome, equal, interval, loss_of, model_of, rate, run
from benchmarks.accuracy_codecs import Groups, fixed_width, noisy, nudged
from benchmarks.accuracy_tasks import TASKS, Data


def test_the_interval_is_student_s_for_ninety_percent():
    mean, width = interval([1.0, 2.0, 3.0, 4.0])
    # The table's 0.95 quantile of Student's t with 3 degrees of freedom is 2.353.
    assert mean == 2.5
    assert width == pytest.approx(2.353 * math.sqrt(5 / 3) / 2, rel=1e-3)


def test_equal_needs_both_whole_intervals_in_the_band():
    assert equal((0.2, 0.29), (-0.4, 0.09))
    assert not equal((0.2, 0.31), (0.0, 0.0))
    assert not equal((0.0, 0.0), (-0.45, 0.1))
    assert not equal(interval([0.0, math.nan]), (0.0, 0.0))


def test_the_rate_rises_in_a_line_and_falls_to_zero():
    rates = [rate(step, 100, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert rates[10] == 1
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] < 0.001
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rate(0, 100, 0) == 1


@pytest.mark.parametrize(("dtype", "weights", "inside"), [("autocast", 4, 2), ("bfloat16", 2, 2), ("float32", 4, 4)])
@pytest.mark.parametrize("name", ["text", "digits"])
def test_a_type_holds_for_weights_and_for_what_is_saved(name, dtype, weights, inside):
    task = replace(TASKS[name], dtype=dtype)
    model = model_of(task)
    assert {p.element_size() for p in model.parameters()} == {weights}
    widths = set()
    for layer in (layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)):
        layer.register_forward_hook(lambda module, args, output: widths.add(output.element_size()))
    loss = loss_of(model, task, task.data().train, torch.arange(2))
    assert widths == {inside}
    assert loss.dtype == torch.float32


def test_a_nudge_moves_the_first_gradient_only():
    weight = torch.nn.Parameter(torch.zeros(1))
    steps = []
    with nudged():
        optimizer = torch.optim.SGD([weight], lr=1.0)
        for _ in range(2):
            before = weight.item()
            weight.grad = torch.ones(1)
            optimizer.step()
            steps.append(before - weight.item())
    assert steps[0] == pytest.approx(1.000001, abs=1e-7)
    assert steps[1] == pytest.approx(1, abs=2e-7)
    weight.grad = torch.ones(1)
    optimizer.step()
    assert weight.item() == pytest.approx(-3.000001, abs=1e-6)


def test_noise_is_a_share_of_the_mean_momentum_of_matrices():
    torch.manual_seed(0)
    matrix, vector = torch.nn.Parameter(torch.zeros(200, 200)), torch.nn.Parameter(torch.zeros(200))
    with noisy(0.01):
        optimizer = torch.optim.SGD([matrix, vector], lr=1.0, momentum=0.9)
        for _ in range(2):
            matrix.grad, vector.grad = torch.full((200, 200), 2.0), torch.full((200,), 2.0)
            optimizer.step()
    assert (vector.grad == 2).all()
    # After one step the momentum is the gradient, 2.
    assert (matrix.grad - 2).std() == pytest.approx(0.02, rel=0.05)
    assert (matrix.grad - 2).mean() == pytest.approx(0, abs=0.001)


def test_nudged_training_counts_nothing_and_differs():
    task = TASKS["digits"]
    data = task.data()
    few = Data((data.train[0][:128], data.train[1][:128]), data.test)
    plain, other = run("plain", task, few, 2, 1), run("nudged", task, few, 2, 1)
    assert other.loss != plain.loss
    assert other.loss == pytest.approx(plain.loss, rel=1e-3)
    assert other.plain == other.saved == 0


@pytest.mark.parametrize("bits", [2, 4])
def test_codes_of_fixed_width_stay_within_a_step_and_cost_what_they_say(bits):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    groups = Groups.of(x, bits, False, torch.Generator().manual_seed(2))
    steps = groups.step.expand(-1, 256).reshape(-1)[:1000]
    # The last group is padded with zeros, which its range then holds.
    assert ((groups.decode() - x).abs() <= steps * 1.0001).all()
    assert groups.nbytes == 1000 * bits // 8 + 4 * 8
    assert (groups.decode() < 0).any()


def test_codes_that_serve_a_relu_keep_its_zeros():
    x = torch.randn(512, generator=torch.Generator().manual_seed(1)).relu()
    groups = Groups.of(x, 2, True, torch.Generator().manual_seed(2))
    assert torch.equal(groups.decode() > 0, x > 0)
    assert groups.nbytes == 512 * 2 // 8 + 2 * 8 + 512 // 8 + 4


def test_codes_of_fixed_width_count_as_packed_inputs():
    """So that they can be compared with adaptive ones of the same size."""
    model = torch.nn.Linear(256, 4)
    with fixed_width(2) as session:
        model(torch.randn(64, 256)).sum().backward()
    counted = Outcome(0, 0, 0).with_figures(session.figures)
    assert (counted.inputs, counted.codes) == (64 * 256 * 4, 64 * 256 * 2 // 8 + 64 * 8)


@pytest.mark.parametrize("name", TASKS)
def test_what_is_tested_on_was_not_trained_on(name):
    data = TASKS[name].data()
    seen = {row.numpy().tobytes() for row in data.train[0]}
    fresh = sum(row.numpy().tobytes() not in seen for row in data.test[0])
    assert fresh == len(data.test[0]) > 100
    assert set(data.test[1].flatten().tolist()) <= set(range(TASKS[name].classes))
