"""What an error of the gradient is measured by: the step of whichever optimizer it goes into."""

import copy
import sys
import types

import pytest
import torch

from kompakt_runtime.bounds.optimizer_state import UnknownState, kept
from kompakt_runtime.bounds.spread import Spread
from kompakt_runtime.bounds.targets import error_of_a_step

SHAPE = (24, 16)
# Some features are a hundred times larger than the others, and some channels are.
SCALES = torch.logspace(-1, 1, SHAPE[0])[:, None] * torch.logspace(-1, 1, SHAPE[1])[None, :]
SPREAD = Spread(0, SCALES[:, 0].square(), torch.arange(1.0, SHAPE[1] + 1))


def gradients(count: int):
    generator = torch.Generator().manual_seed(0)
    common = 0.3 * torch.randn(SHAPE, generator=generator)
    return [SCALES * (common + torch.randn(SHAPE, generator=generator)) for _ in range(count)]


def trained(optimizer_class, **options):
    weight = torch.nn.Parameter(torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)))
    optimizer = optimizer_class([weight], **{"lr": 1e-4, **options})
    for gradient in gradients(60):
        weight.grad = gradient
        optimizer.step()
    return optimizer, weight


def errors(size: float):
    """Of the spread above, with `size` as their root mean square."""
    variances = SPREAD.rows[:, None] * SPREAD.columns[None, :]
    noise = torch.randn(SHAPE, generator=torch.Generator().manual_seed(2))
    return noise * (variances / variances.mean()).sqrt() * size


def stepped(optimizer, gradient):
    """How far one more step moves the weight; the optimizer stays as it is."""
    other = copy.deepcopy(optimizer)
    weight = other.param_groups[0]["params"][0]
    before = weight.detach().clone()
    weight.grad = gradient
    other.step()
    return weight.detach() - before


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9}),
        ("Adam", {}),
        ("AdamW", {"amsgrad": True, "weight_decay": 0.0}),
        ("Adam", {"betas": (0.5, 0.99)}),
        ("Adam", {"eps": 10.0}),
        ("RAdam", {}),
        ("NAdam", {}),
        ("NAdam", {"betas": (0.5, 0.99)}),
        ("Adadelta", {"lr": 1.0}),
        ("RMSprop", {}),
        ("RMSprop", {"momentum": 0.9}),
        ("Adagrad", {}),
        ("Adafactor", {"weight_decay": 0.0}),
    ],
)
def test_an_error_of_that_size_moves_the_weight_as_far_as_the_step_does(name, options):
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    optimizer, weight = trained(getattr(torch.optim, name), **options)
    gradient = weight.grad = gradients(61)[-1]
    share = 0.01
    moved = stepped(optimizer, gradient + errors(share * float(error_of_a_step(optimizer, weight, SPREAD).size)))
    step = stepped(optimizer, gradient)
    measured = float((moved - step).square().mean().sqrt() / step.abs().mean())
    assert measured == pytest.approx(share, rel=0.3)


def state_of(held: dict, group: dict | None = None, **attributes):
    """An optimizer of another library that keeps this of one weight."""
    weight = torch.nn.Parameter(torch.ones(4, 6))
    weight.grad = torch.ones(4, 6)
    return types.SimpleNamespace(
        state={weight: held}, param_groups=[{"params": [weight], "lr": 0.1, **(group or {})}], **attributes
    ), weight


ROW, COLUMN = torch.tensor([1.0, 2.0, 3.0, 6.0]), torch.tensor([1.0, 1.0, 2.0, 2.0, 3.0, 9.0])
OUTER = ROW[:, None] / 3.0 * COLUMN[None, :]


@pytest.mark.parametrize(
    ("held", "group", "momentum", "squares"),
    [
        ({"row_var": ROW[:, None], "col_var": COLUMN[None, :]}, {}, None, OUTER),
        ({"exp_avg_sq_row": ROW, "exp_avg_sq_col": COLUMN, "exp_avg": OUTER, "RMS": 1.0}, {}, None, OUTER),
        ({"exp_avg": OUTER}, {"betas": (0.9, 0.99)}, 10 * OUTER, None),
        ({"exp_avg": OUTER}, {"betas": (0.99, 0.99)}, 10 * OUTER, None),
        ({"exp_avg": OUTER}, {}, OUTER, None),
        ({"exp_avg": OUTER, "exp_inf": OUTER}, {"betas": (0.5, 0.9)}, 2 * OUTER, OUTER.square()),
        ({"momentum_buffer": OUTER}, {}, OUTER, None),
        ({"momentum_buffer": OUTER}, {"ns_steps": 5, "momentum": 0.8}, 5 * OUTER, None),
        ({"momentum_buffer": OUTER, "square_avg": ROW[:, None].expand(4, 6)}, {"lr_in_momentum": True}, 10 * OUTER, ...),
        ({}, {}, None, None),
        ({"momentum_buffer": None}, {}, None, None),
        ({"step": torch.tensor(3.0)}, {}, None, None),
    ],
)
def test_what_is_kept_is_told_by_names(held, group, momentum, squares):
    known = kept(*state_of(held, group))
    torch.testing.assert_close(known.momentum, momentum)
    if squares is not ...:
        torch.testing.assert_close(known.squares, squares)


@pytest.mark.parametrize("held", [{"exp_avg": torch.ones(2, 6)}, {"shampoo": torch.ones(4, 4)}, {"state1": torch.ones(4, 6)}])
def test_what_has_another_shape_or_name_is_not_guessed_at(held):
    with pytest.raises(UnknownState):
        kept(*state_of(held))


class Bits(torch.Tensor):
    """As optimizers of 8 bits keep their state: numbers of its own, and a function that widens them."""

    def dequantize(self, output_dtype=None):
        return self.as_subclass(torch.Tensor) * 2


def test_a_tensor_of_fewer_bits_is_widened_by_its_own_class():
    known = kept(*state_of({"exp_avg": OUTER.as_subclass(Bits), "exp_avg_sq": OUTER.as_subclass(Bits)}))
    torch.testing.assert_close(known.momentum, 2 * OUTER)
    torch.testing.assert_close(known.squares, 2 * OUTER)
    assert type(known.squares) is torch.Tensor


def blocks(t):
    """bitsandbytes' form: bytes in blocks of 16, a factor for each, and the numbers that bytes stand for."""
    return {
        "state": (t.flatten() * 10).round().to(torch.uint8).view_as(t),
        "absmax": torch.full((2,), 2.0),
        "qmap": torch.arange(256),
    }


def dequantized(a, absmax, code, blocksize):
    assert (blocksize, len(absmax)) == (16, 2)
    return code[a.long()] * absmax.repeat_interleave(blocksize)[: a.numel()].view_as(a)


@pytest.mark.parametrize(("rule", "numbers"), [("adam", (1, 2)), ("lion", (1,)), ("momentum", (1,))])
def test_blocks_of_bytes_are_read_by_their_own_library(monkeypatch, rule, numbers):
    held = {f"{name}{number}": t for number in numbers for name, t in blocks(OUTER).items()}
    optimizer, weight = state_of(held, {"betas": (0.5, 0.9)}, optimizer_name=rule)
    with pytest.raises(UnknownState):
        kept(optimizer, weight)
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", types.SimpleNamespace(dequantize_blockwise=dequantized))
    known = kept(optimizer, weight)
    wide = (OUTER * 10).round() * 2
    torch.testing.assert_close(known.momentum, wide if rule == "momentum" else 2 * wide)
    assert (known.squares is None) == (len(numbers) == 1)


def test_a_rule_of_blocks_that_is_no_momentum_is_not_guessed_at():
    optimizer, weight = state_of({"state1": OUTER}, optimizer_name="rmsprop")
    with pytest.raises(UnknownState):
        kept(optimizer, weight)


@pytest.mark.parametrize("shape", [(256, 256), (64, 512), (512, 64), (128, 32, 3, 3)])
def test_muon_bears_an_error_whose_largest_singular_value_is_the_typical_one_of_its_momentum(shape):
    weight = torch.nn.Parameter(torch.zeros(shape))
    generator = torch.Generator().manual_seed(0)
    momentum = torch.randn(shape, generator=generator)
    optimizer = types.SimpleNamespace(
        state={weight: {"momentum_buffer": momentum}}, param_groups=[{"params": [weight], "ns_steps": 5, "momentum": 0.0}]
    )
    weight.grad = momentum
    error = torch.randn(shape, generator=generator).flatten(1) * error_of_a_step(optimizer, weight, Spread()).size
    typical = torch.linalg.svdvals(momentum.flatten(1)).square().mean().sqrt()
    assert float(torch.linalg.matrix_norm(error, 2) / typical) == pytest.approx(1.0, rel=0.1)


def decayed(decay: float, gradients: float, momentum: float = 0.9) -> tuple[float, float]:
    """The size of an error that counts as a step, and the mean |momentum|, after 20 steps."""
    weight = torch.nn.Parameter(torch.randn(64, 64, generator=torch.Generator().manual_seed(0)))
    optimizer = torch.optim.SGD([weight], lr=1e-3, momentum=momentum, weight_decay=decay)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        weight.grad = gradients * torch.randn(64, 64, generator=generator)
        optimizer.step()
    whole = optimizer.state[weight]["momentum_buffer"] if momentum else weight.grad
    return float(error_of_a_step(optimizer, weight, Spread()).size), float(whole.abs().mean())


@pytest.mark.parametrize(("momentum", "gradients"), [(0.0, 1e-6), (0.9, 1.0), (0.9, 1e-3)])
def test_what_weight_decay_adds_to_the_momentum_allows_no_wider_error(momentum, gradients):
    assert decayed(5e-4, gradients, momentum)[0] == pytest.approx(decayed(0.0, gradients, momentum)[0], rel=0.1)


def test_where_weight_decay_makes_the_step_a_tenth_of_it_counts():
    size, whole = decayed(5e-4, 1e-6)
    assert size == pytest.approx(whole / 10, rel=1e-3)
    assert size > 100 * decayed(0.0, 1e-6)[0]


def test_coordinates_without_gradients_leave_a_finite_target():
    weight = torch.nn.Parameter(torch.ones(8, 8))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.diag(torch.arange(8.0))
    optimizer.step()
    assert 0 < float(error_of_a_step(optimizer, weight, Spread()).size) < 8
