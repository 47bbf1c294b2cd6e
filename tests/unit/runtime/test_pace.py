"""How long a step takes and what gradients it has, counted on real optimizers by a clock of the test's own."""

import itertools

import pytest
import torch

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import metrics
from kompakt_runtime.figures.pace import LEAST, WARM_UP, StepCounter


def optimizer(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.optim.Optimizer:
    parameters = [torch.nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.SGD(parameters, lr=0.1)


def ticking(*seconds: float) -> StepCounter:
    """A pace whose clock moves on by these seconds, over and over."""
    moments = itertools.accumulate(itertools.cycle(seconds))
    return StepCounter(lambda: next(moments))


def test_the_median_step_and_the_bytes_of_its_gradients():
    pace, one = ticking(0.2, 0.2, 0.2, 5.0), optimizer(10, 6)
    for _ in range(WARM_UP + LEAST + 1):
        assert pace.said() == {}
        assert pace.stepped(one)
    said = pace.said()
    assert said == {"stepSeconds": pytest.approx(0.2), "gradientBytes": 64, "ranks": 1}, "a pause every fourth step is none of it"


def test_two_optimizers_are_one_step_and_both_have_gradients():
    pace, first, second = ticking(0.5), optimizer(10), optimizer(3, dtype=torch.float16)
    frozen = torch.optim.SGD([torch.nn.Parameter(torch.zeros(99))], lr=0.1)
    for _ in range(WARM_UP + LEAST + 1):
        assert [pace.stepped(each) for each in (first, second, frozen)] == [True, False, False]
    assert pace.said() == {"stepSeconds": pytest.approx(0.5), "gradientBytes": 46, "ranks": 1}


def test_a_watched_process_counts_by_itself_and_shows_it_on_its_page():
    pace, one = StepCounter(), optimizer(4)
    pace.watch()
    for _ in range(WARM_UP + LEAST + 1):
        one.step()
    page = metrics.text(RuntimeConfig(), pace)
    assert "kompakt_gradient_bytes 16\n" in page
    assert "# TYPE kompakt_step_seconds gauge\n" in page


def test_an_optimizer_that_is_none_disturbs_nothing():
    pace = StepCounter()
    for _ in range(WARM_UP + 1):
        pace._hook(object(), (), {})
    assert pace.said() == {}
