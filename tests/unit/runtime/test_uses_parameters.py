"""Which saved tensors are linear operands, in code as people write it: their error ends in a parameter's gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kompakt_runtime.uses.reads import Read
from tests.support.runtime.recorder import Recorder


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(drawn(*shape))


def x(*shape: int) -> torch.Tensor:
    """An activation: something made it."""
    return parameter(*shape) * 1


def conv1d_of_gpt2() -> torch.Tensor:
    """transformers keeps the weight transposed and adds the bias in the product."""
    t = x(2, 4, 8)
    return torch.addmm(parameter(6), t.view(-1, 8), parameter(8, 6)).view(2, 4, 6)


def autocast() -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x(4, 8), parameter(6, 8), parameter(6))


def stacked_experts() -> torch.Tensor:
    """One weight for all experts, of which each is a view."""
    stacked = parameter(3, 8, 6)
    return x(4, 8) @ stacked[1]


def standardized(*shape: int) -> torch.Tensor:
    """As the convolutions of NFNets and BiT have it."""
    return F.layer_norm(parameter(*shape), shape[1:])


LINEAR = {
    "functional linear layer": ("AddmmBackward0.mat1", lambda: F.linear(x(4, 8), parameter(6, 8), parameter(6))),
    "without a bias": ("MmBackward0.self", lambda: F.linear(x(2, 4, 8), parameter(6, 8))),
    "GPT-2's Conv1D": ("AddmmBackward0.mat1", conv1d_of_gpt2),
    "autocast": ("AddmmBackward0.mat1", autocast),
    "einsum": ("BmmBackward0.self", lambda: torch.einsum("btd,hd->bth", x(2, 4, 8), parameter(6, 8))),
    "stacked experts, one by one": ("MmBackward0.self", stacked_experts),
    "stacked experts at once": ("BmmBackward0.self", lambda: torch.bmm(x(3, 4, 8), parameter(3, 8, 6))),
    "experts added to": ("BaddbmmBackward0.batch1", lambda: torch.baddbmm(parameter(3, 1, 6), x(3, 4, 8), parameter(3, 8, 6))),
    "packed projections": ("MmBackward0.self", lambda: F.linear(x(4, 8), parameter(24, 8).chunk(3)[1])),
    "scale of a norm": ("MulBackward0.self", lambda: x(4, 8) * parameter(8)),
    "layer scale, the other way round": ("MulBackward0.other", lambda: parameter(8) * x(4, 8)),
    "convolution": ("ConvolutionBackward0.input", lambda: F.conv1d(x(2, 3, 9), parameter(4, 3, 3))),
    "transposed convolution": ("ConvolutionBackward0.input", lambda: F.conv_transpose2d(x(2, 3, 5, 5), parameter(3, 4, 2, 2))),
    "grouped convolution": ("ConvolutionBackward0.input", lambda: F.conv2d(x(2, 4, 5, 5), parameter(4, 2, 3, 3), groups=2)),
}
PRODUCT = {
    "scores": ("BmmBackward0.self", lambda: x(2, 4, 8) @ x(2, 5, 8).mT),
    "scores, keys": ("BmmBackward0.mat2", lambda: x(2, 4, 8) @ x(2, 5, 8).mT),
    "gate": ("MulBackward0.self", lambda: F.silu(x(4, 8)) * x(4, 8)),
    "weight of weight norm": ("MmBackward0.self", lambda: x(4, 8) @ (parameter(8, 6) / 2)),
    "weight that an activation makes": ("MmBackward0.self", lambda: x(4, 8) @ x(8, 6).t().t()),
    "standardized kernel": ("ConvolutionBackward0.input", lambda: F.conv2d(x(2, 3, 5, 5), standardized(4, 3, 3, 3))),
}


def reads(made) -> dict[str, Read | None]:
    with Recorder() as seen:
        seen.end(made())
    return {told.place: told.read for told in seen.told}


@pytest.mark.parametrize(("place", "made"), LINEAR.values(), ids=LINEAR)
def test_linear_operands(place, made):
    assert reads(made)[place] is Read.LINEAR


@pytest.mark.parametrize(("place", "made"), PRODUCT.values(), ids=PRODUCT)
def test_product_operands(place, made):
    assert reads(made)[place] is Read.PRODUCT


def test_both_factors_of_an_adapter_are_linear_operands():
    """Low-rank adapters beside a frozen weight, whose product saves no input."""
    t, frozen = x(4, 8), drawn(8, 6)
    a, b = parameter(8, 2), parameter(2, 6)
    with Recorder() as seen:
        seen.end(t @ frozen + t @ a @ b)
    operands = [(told.parameter, told.shape) for told in seen.told if told.read is Read.LINEAR]
    assert [shape for _, shape in operands] == [(4, 8), (4, 2)] or [shape for _, shape in operands] == [(4, 2), (4, 8)]
    assert {id(owner) for owner, _ in operands} == {id(a), id(b)}


def test_an_expanded_parameter_is_a_parameter():
    weight = parameter(1, 8, 6)
    with Recorder() as seen:
        seen.end(torch.bmm(x(3, 4, 8), weight.expand(3, 8, 6)))
    told = next(told for told in seen.told if told.place == "BmmBackward0.self")
    assert told.read is Read.LINEAR
    assert told.parameter is weight


def test_two_parameters_multiplied_are_linear_operands_of_each_other():
    with Recorder() as seen:
        seen.end(parameter(4, 8) @ parameter(8, 6))
    assert {told.place: told.read for told in seen.told} == {"MmBackward0.self": Read.LINEAR, "MmBackward0.mat2": Read.LINEAR}
