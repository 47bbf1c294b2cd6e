"""What a batch norm gave, computed again from its input, whose channels have bounds of their own."""

import pytest
import torch
from torch import nn

from kompakt_runtime.saved.operators import OPERATORS
from tests.support.runtime.derived_training import derived
from tests.support.runtime.small_training import batch, failed, warm_up

WEIGHTS = (1.0, -2.0, 0.03, 0.5)
SIZES = (1.0, 20.0, 0.05, 3.0)


def network(activation: nn.Module) -> nn.Sequential:
    """The first norm's channels differ, in what comes in and in what they are multiplied by."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        activation,
        nn.Conv2d(4, 8, 3, padding=1),
        nn.Flatten(),
        nn.Linear(8 * 36, 4),
    )
    with torch.no_grad():
        model[0].weight *= torch.tensor(SIZES).view(4, 1, 1, 1)
        model[1].weight.copy_(torch.tensor(WEIGHTS))
        model[1].bias.copy_(torch.linspace(-1, 1, 4))
    return model


def gradients(model: nn.Sequential) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(batch() * 1).square().sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def rows(session, kind: str) -> list[str]:
    return [name for name in derived(session) if name.endswith(f"[{kind}] [derived]")]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "activation", [nn.Hardswish(), nn.Hardswish(inplace=True), nn.SiLU(), nn.SiLU(inplace=True), nn.GELU()], ids=repr
)
def test_an_activations_input_is_computed_again_from_the_norms(running, activation, layout):
    model = network(activation).to(memory_format=layout)
    session = running(activation_gradients="Bounded", verify=True)
    warm_up(model, steps=9, momentum=0.9)
    kind = type(activation).__name__.lower()
    assert rows(session, kind), session.figures.layers
    ours = gradients(model)
    assert session.figures.violations == 0 < session.figures.checked
    assert not session.figures.raw["DerivedDiffers"]
    assert not failed(session)
    session.stop()
    plain = gradients(model)
    for name, gradient in plain.items():
        if name != "0.bias":  # which the norm takes off again
            assert float((ours[name] - gradient).norm()) < 0.05 * float(gradient.norm()), name


def test_both_take_less_than_each_for_itself(running, monkeypatch):
    def taken(allow: bool) -> int:
        if not allow:
            monkeypatch.delitem(OPERATORS, "NativeBatchNormBackward0")
        session = running(activation_gradients="Bounded")
        model = network(nn.Hardswish(inplace=True))
        warm_up(model, steps=5, momentum=0.9)
        session.figures.layers.clear()
        gradients(model)
        session.stop()
        return sum(row.saved for name, row in session.figures.layers.items() if name.startswith(("1 ", "2 ")))

    assert 0 < taken(True) < 0.8 * taken(False)


def test_in_evaluation_mode_a_norm_has_no_statistics_to_compute_with(running):
    session = running(activation_gradients="Bounded")
    model = network(nn.Hardswish())
    model[1].eval()
    warm_up(model, steps=5, momentum=0.9)
    assert not rows(session, "hardswish")
    assert not session.figures.raw["DerivedDiffers"], "nobody tries"
    assert not failed(session)


def test_a_norm_without_a_trained_shift_is_not_computed_again(running):
    """Its node does not tell the shift."""
    session = running(activation_gradients="Bounded")
    model = network(nn.Hardswish())
    model[1].bias.requires_grad_(False)
    warm_up(model, steps=5, momentum=0.9)
    assert not rows(session, "hardswish")
    assert not failed(session)


def test_what_was_changed_before_an_operation_in_place_cloned_it_is_compared(running):
    """Autograd knows nothing of it, and a clone looks like the norm's result."""

    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x.mul_(self.times)
            return nn.functional.hardswish(x, inplace=True)

    session = running(activation_gradients="Bounded", verify=True)
    model = network(Doubled())
    model[2].times = 1.0
    warm_up(model, steps=7, momentum=0.9)  # the next step is not measured
    assert derived(session)
    model[2].times = 2.0
    ours = gradients(model)
    assert session.figures.violations == 0
    session.stop()
    plain = gradients(model)
    assert float((ours["3.weight"] - plain["3.weight"]).norm()) < 0.05 * float(plain["3.weight"].norm())
