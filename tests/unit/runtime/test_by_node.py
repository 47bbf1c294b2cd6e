"""What is compressed in code that computes without modules of torch's own: by the operation that reads it, not by the module."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kompakt_runtime.figures.export import report
from kompakt_runtime.report.text import Report
from kompakt_runtime.uses.policy import Use
from tests.support.runtime.small_training import Holder, failed

ROWS, WIDE = 24, 16
torch.manual_seed(0)


class Conv1D(nn.Module):
    """Linear with its weight the other way round, as in GPT-2 of transformers."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(wide, out) * 0.1), nn.Parameter(torch.zeros(out))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Weights(nn.Module):
    """Parameters that functions use."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape) * 0.2))


def rms(x, weight):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def llama_block(own, x):
    """A written-out norm, rotary embeddings, eager attention, a gated unit."""
    angles = torch.arange(x.shape[1])[:, None] * torch.logspace(0, -2, x.shape[2])
    seen = rms(x, own.norm)
    q, k, v = (seen @ weight for weight in (own.q, own.k, own.v))
    q, k = (turned(one, angles.cos(), angles.sin()) for one in (q, k))
    x = x + (q @ k.mT / 4).softmax(-1) @ v @ own.out
    return x + (F.silu(x @ own.gate) * (x @ own.up)) @ own.down


SQUARE = (WIDE, WIDE)
LLAMA = Weights(norm=(WIDE,), **dict.fromkeys(("q", "k", "v", "out", "gate", "up", "down"), SQUARE))


def trained(model, x, session, steps: int = 3):
    """Gradients after so many steps that move nothing: with the session, and without it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    found = []
    for step in range(steps + 2):
        if step == steps + 1:
            session.stop()
        optimizer.zero_grad()
        entry = x.clone().requires_grad_()
        model(entry * 1).square().sum().backward()
        found.append({name: weight.grad.clone() for name, weight in model.named_parameters()} | {"input": entry.grad})
        if step < steps:
            optimizer.step()
    return found[-2:]


def batch(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def moved(ours, plain) -> set[str]:
    return {name for name, gradient in plain.items() if not torch.equal(ours[name], gradient)}


FUNCTIONS = {
    "the weight the other way round": (Conv1D(WIDE, 8), lambda model, x: model(x), (ROWS, WIDE), {"model.weight"}),
    "F.linear": (Weights(w=(8, WIDE)), lambda own, x: F.linear(x, own.w), (ROWS, WIDE), {"model.w"}),
    "a matrix on the left": (Weights(w=(8, ROWS)), lambda own, x: own.w @ x, (ROWS, WIDE), {"model.w"}),
    "F.conv2d": (Weights(w=(4, 3, 3, 3)), lambda own, x: F.conv2d(x, own.w), (4, 3, 8, 8), {"model.w"}),
    "transposed": (Weights(w=(3, 4, 3, 3)), lambda own, x: F.conv_transpose2d(x, own.w), (4, 3, 8, 8), {"model.w"}),
    "experts": (Weights(w=(4, WIDE, 8)), lambda own, x: torch.bmm(x, own.w), (4, ROWS, WIDE), {"model.w"}),
    "a scale": (Weights(w=(WIDE,)), lambda own, x: x * own.w, (ROWS, WIDE), {"model.w"}),
    "autocast": (nn.Linear(WIDE, 8), lambda model, x: cast(model, x), (ROWS, WIDE), {"model.weight"}),
}


def cast(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(x).float()


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_operands_of_weights_are_packed_whoever_multiplies_and_only_those_weights_move(running, kind):
    inner, function, shape, linear = FUNCTIONS[kind]
    session = running()
    ours, plain = trained(Holder(inner, function), batch(*shape), session)
    assert moved(ours, plain) == linear
    for name in linear:
        assert float((ours[name] - plain[name]).norm()) < 0.1 * float(plain[name].norm())
    assert session.figures.violations == 0 < session.figures.checked
    assert not failed(session)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_measured_error_of_each_is_what_was_aimed_at(running, kind):
    """sigma is measured against what the error model expects; None where nobody wrote down the weight's gradient."""
    inner, function, shape, _ = FUNCTIONS[kind]
    session = running()
    trained(Holder(inner, function), batch(*shape), session, steps=5)
    (row,) = (row for row in session.figures.layers.values() if row.bound)
    assert 0.6 < row.sigma < 1.5 if kind not in ("a scale", "transposed") else row.sigma is None or row.sigma < 1.5


def test_projections_of_multihead_attention_are_packed(running):
    torch.manual_seed(0)
    model = Holder(nn.MultiheadAttention(WIDE, 2, batch_first=True), lambda model, x: model(x, x, x, need_weights=False)[0])
    session = running(activation_gradients="Exact")
    ours, plain = trained(model, batch(2, ROWS, WIDE), session)
    assert session.figures.layers["model.in_proj_weight"].saved > 0
    assert moved(ours, plain) == {"model.in_proj_weight"}, "attention itself reads the other's input, for gradients that go on"


def test_a_replaced_forward_function_makes_no_linear_layer_of_what_is_none(running):
    """It multiplies its input with itself, too: that gradient goes on, and must be exact."""
    model = nn.Linear(WIDE, WIDE, bias=False)
    model.forward = lambda x: F.linear(x, model.weight) * (x * x)
    ours, plain = trained(model, batch(ROWS, WIDE), running(activation_gradients="Exact"))
    assert torch.equal(ours["input"], plain["input"])


def test_a_leaf_that_is_no_parameter_gets_its_exact_gradient(running):
    """An adversarial example: what it is multiplied with is a factor of the gradient that was asked for."""
    x, session = batch(ROWS, WIDE).requires_grad_(), running(activation_gradients="Exact")
    other = nn.Linear(WIDE, WIDE)
    model = Holder(other, lambda inner, y: (inner(y * 1).sigmoid() * x).sum())
    for _ in range(3):
        x.grad = None
        model(batch(ROWS, WIDE)).backward()
        torch.optim.SGD(model.parameters(), lr=0.0).step()
    assert torch.equal(x.grad, other(batch(ROWS, WIDE)).sigmoid())
    assert not failed(session)


def test_a_block_as_others_write_it_is_packed_node_by_node(running):
    session = running(activation_gradients="Bounded")
    ours, plain = trained(Holder(LLAMA, llama_block), batch(4, ROWS, WIDE), session, steps=4)
    kinds = {
        name.split("[")[1].rstrip("]").split()[0] for name, row in session.figures.layers.items() if "[" in name and row.saved
    }
    assert kinds >= {"pow", "mul", "rsqrt", "softmax", "silu", "bmm"}
    assert session.figures.raw.keys() <= {"NoGain", "HeldElsewhere"}, "nothing is kept for want of a row"
    assert all(float((ours[name] - plain[name]).norm()) < 0.1 * float(plain[name].norm()) for name in plain)
    assert session.figures.violations == 0
    assert not failed(session)


def test_what_goes_on_stays_exact_if_that_is_asked_for(running):
    session = running(activation_gradients="Exact")
    ours, plain = trained(Holder(LLAMA, llama_block), batch(4, ROWS, WIDE), session)
    assert torch.equal(ours["input"], plain["input"])
    assert moved(ours, plain), "some weight's operand was packed"


def test_a_tensor_that_is_saved_again_later_is_not_packed_again(running, monkeypatch):
    """A gated unit saves its input for the gate, and after the activation for the other product."""
    packed = []
    session = running(activation_gradients="Exact")
    compress = session.hooks.ledger.later.compress
    session.hooks.ledger.later.compress = lambda *how, **more: packed.append(how[3]) or compress(*how, **more)
    own = Weights(gate=SQUARE, up=SQUARE)
    model = Holder(own, lambda own, x: F.silu(x @ own.gate) * (x @ own.up))
    trained(model, batch(ROWS, WIDE), session)
    packed.clear()
    session.start()
    for name, bound in (("gate", 0.1), ("up", 0.2)):
        site = session.sites.of(own, name)
        site.bound, site.observing = bound, False
    out = model(batch(ROWS, WIDE).requires_grad_() * 1)
    assert packed == ["model.gate"], "the first copy is within the wider bound, too"
    out.sum().backward()
    assert not failed(session)


@pytest.mark.parametrize("way", ["unknown", "hidden"])
def test_what_nobody_wrote_down_stays_exact_and_is_counted(running, way):
    class Boxed:
        def __init__(self, t):
            self.t = t

    def unknown(own, x):
        return (x * own.w).cumprod(0) if way == "unknown" else Boxed(x.exp())

    session = running(activation_gradients="Bounded")
    model, x = Holder(Weights(w=(WIDE,)), unknown), batch(ROWS, WIDE).requires_grad_()
    out = model(x * 1)
    (out.t if way == "hidden" else out).sum().backward()
    rows = {place: nbytes for place, _, nbytes in session.figures.unknown.rows()}
    size = 4 * ROWS * WIDE
    expected = {"CumprodBackward0.self": size, "CumprodBackward0.result": size}
    assert rows == (expected if way == "unknown" else {"inside of an operation that does not show it": size})
    told = Report.of_rows(session.config, [report(session.figures)] * 2)
    assert list(told.no_row.values()) == [(2, 2 * size)] * len(rows)
    assert next(iter(rows)) in str(told)


def test_a_branch_that_is_thrown_away_does_not_keep_its_input_plain(running):
    session = running()
    own = Weights(w=SQUARE, v=SQUARE)

    def both(own, x):
        own.aside = [x @ own.v]  # given up before anything is computed from it
        y = x @ own.w
        own.aside = []
        return y * 1

    model = Holder(own, both)
    model((batch(ROWS, WIDE).requires_grad_()) * 1).sum().backward()
    assert session.figures.compressed == 1
    assert not failed(session)


def test_what_was_saved_on_another_stream_is_left_alone(running, monkeypatch):
    """By the time its reader is known the program may be on one that has not come so far."""
    session = running()
    model = nn.Linear(WIDE, WIDE)

    def packed(stream: int) -> int:
        monkeypatch.setattr("kompakt_runtime.saved.entry.stream_of", lambda _t: stream)
        model(batch(ROWS, WIDE) * 1).sum().backward()
        return session.figures.compressed

    assert packed(7) == 0
    assert session.figures.raw["OtherStream"] == 1
    assert packed(0) == 1


def test_who_looks_for_room_hears_of_weight_gradients_in_every_mode(running, monkeypatch):
    told = []
    monkeypatch.setattr("kompakt_runtime.cost.headroom.Headroom.unpacked", lambda _self, use, _dtype: told.append(use))
    running(mode="Lossless", batch="Suggest")
    nn.Linear(WIDE, WIDE)(batch(ROWS, WIDE) * 1).sum().backward()
    assert told == [Use.WEIGHT_GRADIENT]
