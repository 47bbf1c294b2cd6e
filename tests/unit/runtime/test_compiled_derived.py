"""Compiled graphs do not hand over what the backward graph can make again of what it is handed anyway."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.compiled import rewriting
from kompakt_runtime.compiled.derived import derive
from kompakt_runtime.compiled.graphs import outputs
from tests.support.runtime.compiled_models import Curved, Gated, Normed, off, trained
from tests.support.runtime.compiling import compiled

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Grouped(nn.Module):
    """Four heads of queries share two of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value, self.out = nn.Linear(16, 32), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(32, 16)

    def forward(self, x):
        query, key, value = (one(x).unflatten(-1, (-1, 8)).transpose(1, 2) for one in (self.query, self.key, self.value))
        key, value = (one[:, :, None].expand(-1, -1, 2, -1, -1).reshape(query.shape) for one in (key, value))
        return self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class ReadByProducts(nn.Module):
    """A curve of what is otherwise read for a parameter's gradient only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = nn.Linear(16, 32), nn.Linear(32, 8), nn.Linear(32, 8)

    def forward(self, x):
        h = self.first(x)
        return self.second(h) + self.third(h.sigmoid())


class Returning(nn.Module):
    """The user gets what could be made again."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 8)

    def forward(self, x):
        curved = F.gelu(self.first(x))
        return self.last(curved), curved


class Shifted(nn.Module):
    """What the layers behind a norm read is made of what the norm keeps, and of its own shift, which no gradient is made of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last, self.beside = nn.Linear(16, 48), nn.RMSNorm(48), nn.Linear(48, 8), nn.Linear(48, 8)
        self.shift = nn.Parameter(torch.randn(48))

    def forward(self, x):
        h = self.norm(self.first(x)) + self.shift
        return self.last(h) + self.beside(h).sigmoid()


class Highest(nn.Module):
    """The gradient of a maximum asks what is equal to it, so nothing is packed of what the curve before the layer reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 8)

    def forward(self, x):
        h = self.first(x)
        return self.last(F.silu(h)) + h.amax(-1, keepdim=True)


class Deep(nn.Module):
    """What the last layer reads is made of the first one's output by so many operators."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.depth = nn.Linear(16, 64), nn.Linear(64, 8), depth

    def forward(self, x):
        h = self.first(x)
        for _ in range(self.depth):
            h = h.sin()
        return self.last(h)


MODELS = {"gated": Gated, "normed": Normed, "curved": Curved, "grouped": Grouped, "shifted": Shifted}


@pytest.fixture
def handed_over(monkeypatch):
    """By graph: shapes of what was handed over before, and after."""
    found = []

    def watched(forward, backward, results, *others):
        before = shapes(forward, results)
        count = derive(forward, backward, results, *others)
        found.append((before, shapes(forward, results)))
        assert count == sum(one not in found[-1][1] for one in before)
        return count

    monkeypatch.setattr(rewriting, "derive", watched)
    return found


def shapes(forward, results):
    return {one.name: tuple(one.meta["val"].shape) for one in outputs(forward)[results:]}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_what_is_made_again_is_what_was_there(running, handed_over, make):
    """Nothing is packed here, and operators run one by one: gradients are the same to the bit."""
    plain = trained(make())
    running(min_tensor_bytes=1 << 30)
    ours = trained(compiled(make()))
    (before, after), *_ = handed_over
    assert sum(map(size, after.values())) < sum(map(size, before.values()))
    assert plain.keys() == ours.keys()
    for name, gradient in plain.items():
        assert torch.equal(ours[name], gradient), name


def size(shape):
    return torch.Size(shape).numel()


def test_the_product_of_both_factors_is_not_kept(running, handed_over):
    running()
    trained(compiled(Gated()), steps=1)
    before, after = handed_over[0]
    wide = [name for name, shape in after.items() if size(shape) == 32 * 6 * 64]
    assert len(wide) == 2, "gate and what it is multiplied with"
    assert len([shape for shape in before.values() if size(shape) == 32 * 6 * 64]) > 2


def test_keys_and_values_are_kept_once_for_each_group(running, handed_over):
    plain = trained(Grouped())
    running()
    error = off(trained(compiled(Grouped())), plain)
    before, after = handed_over[0]
    heads = [size(shape) for shape in after.values() if size(shape) in (32 * 6 * 16, 32 * 6 * 32) and len(shape) > 2]
    assert sorted(heads)[:2] == [32 * 6 * 16] * 2
    assert [size(shape) for shape in before.values() if len(shape) > 2].count(32 * 6 * 16) == 0
    assert 0 < error < 0.05


@pytest.mark.parametrize(("depth", "again"), [(20, True), (40, False)])
def test_only_so_many_operators_make_a_value_again(running, handed_over, depth, again):
    running()
    trained(compiled(Deep(depth)), steps=1)
    before, after = handed_over[0]
    assert (len(after) < len(before)) == again


def test_the_user_gets_all_that_a_smaller_value_is_repeated_to(running, handed_over):
    """The result is what is saved too."""

    class Repeating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)

        def forward(self, x):
            repeated = self.first(x)[:, None].expand(-1, 3, -1, -1).reshape(-1, 32)
            return repeated, self.last(F.gelu(repeated))

    running()
    model, x = Repeating(), torch.randn(8, 6, 16)
    wanted, _ = model(x)
    out, other = compiled(model)(x)
    other.square().mean().backward()
    assert any(name.startswith("unsqueeze") for name in handed_over[0][1])
    assert torch.equal(out, wanted)


def test_a_norms_shift_is_handed_over_instead_of_its_result(running, handed_over):
    plain = trained(Shifted())
    running()
    error = off(trained(compiled(Shifted())), plain)
    before, after = handed_over[0]
    assert [name for name in after if name not in before and after[name] == (48,)], "the shift"
    assert [shape for shape in after.values() if size(shape) == 32 * 6 * 48] == [(192, 48)], "of the norm, one value"
    assert 0 < error < 0.05


def test_a_frozen_shift_is_not_handed_over(running, handed_over):
    """Whoever changes it between the passes may go on doing so."""
    running()
    model = Shifted()
    model.shift.requires_grad_(False)
    trained(compiled(model), steps=1)
    before, after = handed_over[0]
    assert after.keys() <= before.keys()


def test_parameters_may_change_between_the_passes_where_none_is_handed_over(running, handed_over):
    class Crossed(nn.Module):
        """Products of what parameters are added to and scale: their gradients read no parameter."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.scale, self.one, self.other = (nn.Parameter(torch.randn(16)) for _ in range(3))

        def forward(self, x):
            return (x * self.scale + self.one) @ (x + self.other).mT

    running()
    trained(compiled(Crossed()), steps=1)
    before, after = handed_over[0]
    assert after.keys() <= before.keys()


def test_errors_of_what_products_read_do_not_enter_other_values(running, handed_over):
    running()
    trained(compiled(ReadByProducts()), steps=1)
    before, after = handed_over[0]
    assert before == after


def test_what_the_user_gets_is_kept_by_the_user(running, handed_over):
    running()
    out, _ = compiled(Returning())(torch.randn(32, 16))
    out.square().mean().backward()
    before, after = handed_over[0]
    assert before == after


def test_a_layer_that_nobody_would_measure_keeps_its_operand(running, handed_over):
    """What the curve reads stays as it is, so nothing is seen of what is made of it there."""
    session, code = running(), compiled(Highest())
    trained(code)
    first, *_, (before, after) = handed_over
    assert first[0] != first[1], "it could be made again"
    assert before == after
    assert {site.name for site in session.sites if site.bound is not None} == {"last"}
