"""How much of the errors in compiled code arrives at which layers, as told by its parts and as the gradients show it."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.bounds import allotment, passed_on
from kompakt_runtime.bounds.passed_on import PassedOn
from kompakt_runtime.compiled.arrivals import arrivals
from kompakt_runtime.compiled.slices import BackwardGraph, Slice
from tests.support.runtime.compiled_models import rows, trained
from tests.support.runtime.compiling import compiled

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
WIDTH, BLOCKS = 48, 4


class Block(nn.Module):
    """A small branch beside a large path."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x):
        return x + F.dropout(0.3 * self.down(F.gelu(self.up(self.norm(x)))), self.dropout)


class Attention(nn.Module):
    """By products, or by one operator."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.norm, self.every, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fused = fused

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.every(self.norm(x)).chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v) if self.fused else (q @ k.mT).softmax(-1) @ v
        return x + self.out(h.transpose(1, 2).flatten(2))


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(16, WIDTH), nn.ModuleList(blocks)
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return self.last(self.norm(h))


def stack(*blocks: Any) -> Stack:
    torch.manual_seed(0)
    return Stack(*(make() for make in blocks))


@pytest.fixture
def effects(monkeypatch) -> list[tuple[Any, ...]]:
    """At each measured step: operations, the bounds that they had, layers and squared relative errors there."""
    found: list[tuple[Any, ...]] = []
    known = allotment._effects

    def watched(operations, layers, *others):
        errors = known(operations, layers, *others)
        found.append((operations, [one.used for one in operations], layers, errors, others[0]))
        return errors

    monkeypatch.setattr(allotment, "_effects", watched)
    return found


def gradients(code: nn.Module, model: nn.Module) -> dict[str, torch.Tensor]:
    """Of one row: a weight's gradient is a product of two vectors then, and the squares of their relative errors add up in it."""
    model.zero_grad()
    code(rows(1)[:, :1]).square().sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def test_errors_arrive_as_far_as_was_seen(running, effects):
    model = stack(*[Block] * BLOCKS)
    session, code = running(), compiled(model, decomposed=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(5):
        gradients(code, model)
        optimizer.step()
    operations, used, layers, errors, relative = effects[-1]
    for operation, bound in zip(operations, used, strict=True):
        operation.bound = bound
    for site in session.sites:
        site.bound = 1e-12  # nothing is won by packing, so what only layers read stays as it is
    ours = gradients(code, model)
    session.stop()
    plain = gradients(code, model)
    arrived = {site.name: float(error.sum()) for site, error in zip(layers, errors, strict=True)}
    for name, error in arrived.items():
        exact = plain[f"{name}.weight"]
        true = float((ours[f"{name}.weight"] - exact).norm() / exact.norm())
        assert 0.5 < math.sqrt(error) / true < 2, name
    whole = sum(max(errors) for errors in relative)
    assert arrived["first"] < whole / 4, "the branches are small beside what joins them"


@pytest.fixture
def known(monkeypatch) -> list[set[str]]:
    """At each measured step, the layers at which it was told what arrives."""
    found = []
    arrived = passed_on.arrived

    def watched(*what):
        told = arrived(*what)
        found.append({site.name for site in told})
        return told

    monkeypatch.setattr(passed_on, "arrived", watched)
    return found


CASES = {
    # Behind the last norm nothing comes in.
    "residual": ([Block, Block], {"first", "blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"}),
    "dropout": ([lambda: Block(0.1)] * 2, {"first", "blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"}),
    "fused": ([lambda: Attention(fused=True)], {"first", "blocks.0.every", "blocks.0.out"}),
    # No layer's weight says what is in the gradients between its products.
    "products": ([lambda: Attention(fused=False)], {"first", "blocks.0.out"}),
}


@pytest.mark.parametrize(("blocks", "layers"), CASES.values(), ids=CASES)
def test_layers_are_told_of_where_all_that_errors_come_from_is_known(running, known, blocks, layers):
    running()
    trained(compiled(stack(*blocks), decomposed=True), steps=2)
    assert known[-1] == layers


def test_of_a_layer_that_runs_twice_nothing_is_told(running, known):
    running()
    block = stack(Block).blocks[0]
    trained(compiled(stack(lambda: block, lambda: block), decomposed=True), steps=2)
    assert known[-1] == {"first"}


@pytest.mark.parametrize("told_of", [True, False])
def test_a_part_knows_not_all_where_another_value_brings_in_what_no_part_tells_of(told_of):
    backward, aten = torch.fx.Graph(), torch.ops.aten
    upper, lower, coming, operand = map(backward.placeholder, ("upper", "lower", "coming", "operand"))
    inner = backward.call_function(aten.mul.Tensor, (coming, lower))
    delta = backward.call_function(aten.mul.Tensor, (inner, upper))
    product = backward.call_function(aten.mm.default, (delta, operand))
    backward.output((product,))
    places = {node: place for place, node in enumerate(backward.nodes)}
    graph = BackwardGraph(places, {coming, inner, delta, product}, {delta}, {}, {product: {"weight"}}, frozenset())
    part = Slice(upper, [inner, delta], [lower, coming], [coming], [delta], [], [], "weight", [])
    other = Slice(lower, [inner, delta], [upper, coming], [coming], [delta] if told_of else [], [], [], "weight", [])
    assert arrivals({upper: part, lower: other}, graph)[upper].sources == (((1, ()),) if told_of else ())


class Layer:
    """By its name, for those who read what a test found."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


TOP, MIDDLE, BOTTOM, ASIDE = map(Layer, ("top", "middle", "bottom", "aside"))


def shares(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def found(*parts: PassedOn | None, most: float = 100.0) -> dict[Any, list[float]]:
    """Each part brings an error of one into each gradient that it gives."""
    relative = [[1.0] * len(part.targets) if part is not None else [] for part in parts]
    errors = passed_on.arrived(parts, relative, lambda _: torch.full((len(parts),), most, dtype=torch.float64))
    return {layer: row.tolist() for layer, row in errors.items()}


def test_errors_go_down_from_layer_to_layer_by_their_shares():
    upper = PassedOn([[MIDDLE]], [[TOP]], shares([0.5]))
    lower = PassedOn([[BOTTOM]], [[MIDDLE], [TOP]], shares([0.1], [0.2]))
    # At the top it is not known what arrives.
    assert found(upper, lower) == {MIDDLE: [51.0, 50.0], BOTTOM: [25.1, pytest.approx(26.0)]}


def test_what_another_part_brings_in_counts_too():
    carrying, beside = PassedOn([[BOTTOM]], [[TOP]], shares([0.0])), PassedOn([[BOTTOM]])
    assert found(carrying, beside) == {BOTTOM: [1.0, 1.0]}


def test_of_an_operation_that_does_not_tell_all_counts():
    assert found(PassedOn([[BOTTOM]], [[TOP]], shares([0.0])), None) == {BOTTOM: [1.0, 100.0]}


def test_no_more_arrives_than_without_knowing():
    assert found(PassedOn([[BOTTOM]], [[TOP]], shares([3.0])), most=2.0) == {BOTTOM: [2.0]}


def test_what_comes_from_outside_may_have_all_errors():
    assert found(PassedOn([[BOTTOM]], [[]], shares([0.25])), most=2.0) == {BOTTOM: [1.5]}


def test_of_a_gradient_of_nothing_all_counts():
    part = PassedOn([[BOTTOM]], [[TOP]], shares([math.nan]))
    assert found(part, most=7.0) == {BOTTOM: [7.0]}


def test_layers_in_a_circle_are_told_nothing():
    upper, lower = PassedOn([[TOP]], [[BOTTOM]], shares([0.5])), PassedOn([[BOTTOM]], [[TOP]], shares([0.5]))
    assert found(upper, lower) == {}


def test_without_measured_parts_nothing_is_known():
    assert found(PassedOn([[BOTTOM]], [[TOP]]), None) == {}


def test_of_two_passes_the_larger_shares_count():
    one, other = (PassedOn([[BOTTOM], [ASIDE]], [[TOP]], shares(row)) for row in ([0.1, 0.4], [0.3, 0.2]))
    assert one.beside(other).shares.tolist() == [[0.3, 0.4]]
    assert one.beside(None) is one
    assert one.beside(PassedOn(one.targets)).shares is None, "one of them was not measured"
