"""Operations that run again in a backward pass: how far errors of their sources reach, and that they give the same bits."""

import pytest
import torch

from kompakt_runtime.saved.operators import OPERATORS


@pytest.mark.parametrize("name", OPERATORS)
def test_errors_reach_no_further_than_is_said(name):
    operator, generator = OPERATORS[name], torch.Generator().manual_seed(3)
    x = torch.randn(64, 16, generator=generator, dtype=torch.float64) * 3
    sources = [x, *(torch.randn(16, generator=generator, dtype=torch.float64) for _ in (*operator.slots[1:], *operator.leaves))]
    if name == "MulBackward0":
        sources[1] = torch.randn(64, 16, generator=generator, dtype=torch.float64)
    more = ("none",) if operator.arguments else ()
    reach = operator.reach(lambda number: float(sources[number].abs().max()))
    for number, factor in enumerate(reach):
        if not factor:
            continue
        moved = list(sources)
        moved[number] = sources[number] + 1e-4 * torch.rand(sources[number].shape, generator=generator).sub_(0.5).sign()
        away = float((operator.run(moved, more) - operator.run(sources, more)).abs().max())
        assert 0.3 * 1e-4 * factor < away <= 1.001e-4 * factor, "and hardly less far"


@pytest.mark.parametrize("more", [("none",), ("tanh",)])
def test_slopes_are_the_largest_there_are(more):
    x = torch.linspace(-6, 6, 200001, dtype=torch.float64, requires_grad=True)
    for name in ("GeluBackward0", "SiluBackward0"):
        (slope,) = torch.autograd.grad(OPERATORS[name].run([x], more).sum(), x)
        (said,) = OPERATORS[name].reach(lambda _: 0.0)
        assert 0.999 * said < float(slope.abs().max()) <= said or more == ("none",)
        assert float(slope.abs().max()) <= said


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if operator.over is not None])
def test_written_over_its_source_it_gives_the_same_bits(name):
    x, operator = torch.randn(1000), OPERATORS[name]
    assert operator.over is not None
    assert torch.equal(operator.run([x], ("tanh",)), operator.over([x.clone()], ("tanh",)))
