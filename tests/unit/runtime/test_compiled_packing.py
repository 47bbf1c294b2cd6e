"""Compiled graphs pack what only gradients of parameters are made of; gradients and bounds are as without the compiler."""

import gc

import pytest
import torch
from torch import nn

from kompakt_runtime.compiled import operators, packable, rewriting
from kompakt_runtime.compiled.operators import TICKETS
from kompakt_runtime.compiled.weight_gradients import LEFT, ReadAs, to_text
from kompakt_runtime.scope.calls import Call
from tests.support.runtime.compiling import compiled, dividing

transformers = pytest.importorskip("transformers")


class Chain(nn.Module):
    """What a matrix product makes is read by other products only: by several at once, by rows and by columns."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(16, width)
        self.left, self.right = nn.Linear(width, 24), nn.Linear(width, 4, bias=False)
        self.turned = transformers.pytorch_utils.Conv1D(8, 24)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        h = self.first(x)
        return self.last(self.turned(self.left(h))) + self.right(h)


class Convolutions(nn.Module):
    def __init__(self, memory_format: torch.memory_format = torch.contiguous_format) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.two = nn.Conv2d(8, 6, 3, stride=2, padding=1, groups=2)
        self.three = nn.Conv2d(6, 4, 1)
        self.to(memory_format=memory_format)

    def forward(self, x):
        return self.three(self.two(self.one(x)))


class Signs(nn.Module):
    """Of what a ReLU makes, its own pass backward asks for signs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.three, self.four = nn.Linear(12, 32), nn.Linear(32, 4)

    def forward(self, x):
        first = self.one(x).relu()
        return self.four(self.three(self.two(first) + first).relu())


def rows(count: int = 32, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 6, 16, generator=torch.Generator().manual_seed(seed))


def images(count: int = 8, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


def trained(model, batch=rows, steps: int = 6) -> dict[str, torch.Tensor]:
    """Gradients of the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(seed=step)).square().mean().backward()
        optimizer.step()
    return {name.removeprefix("_orig_mod."): weight.grad.clone() for name, weight in model.named_parameters()}


def off(ours, plain) -> dict[str, float]:
    return {name: float((ours[name] - plain[name]).norm() / plain[name].norm()) for name in plain}


CASES = {
    "products": (Chain, rows),
    "convolutions": (Convolutions, images),
    "signs": (Signs, images),
    "channels last": (lambda: Convolutions(torch.channels_last), images),
}


@pytest.mark.parametrize(("make", "batch"), CASES.values(), ids=CASES)
def test_the_same_layers_have_the_same_bounds_as_without_the_compiler(running, make, batch):
    eager, model = running(activation_gradients="Exact"), make()
    trained(model, batch)
    eager.stop()
    session, code = running(), compiled(make())
    trained(code, batch)
    wanted = {site.name: site.bound for site in eager.sites}
    del wanted["first" if make is Chain else "one"]  # reads the batch, which the training loop keeps
    assert len(wanted) >= 2
    assert {site.name: site.bound for site in session.sites} == pytest.approx(wanted, rel=0.02)
    assert session.figures.compressed > 0
    assert session.figures.violations == 0 < session.figures.checked


@pytest.mark.parametrize(("make", "batch"), CASES.values(), ids=CASES)
def test_gradients_are_within_their_bounds_and_nothing_stays(running, make, batch):
    plain = trained(compiled(make()), batch)
    session, model = running(), compiled(make())
    errors = off(trained(model, batch), plain)
    assert 0 < max(errors.values()) < 0.05
    measured = [site.sigma for site in session.sites if site.sigma is not None]
    assert measured
    assert max(measured) < 1.5
    gc.collect()
    assert len(TICKETS) == 0
    assert session.figures.holding.held == 0
    assert session.figures.saved_bytes < session.figures.plain_bytes


def test_what_packs_nothing_now_gives_the_compilers_own_bits(running):
    """Code stays when its session has ended, or is switched off."""
    plain = trained(compiled(Chain()))
    session, model = running(), compiled(Chain())
    trained(model, steps=1)
    given = TICKETS.given
    session.stop()
    again = Chain()
    model._orig_mod.load_state_dict(again.state_dict())
    ours = trained(model)
    assert TICKETS.given > given, "the code was made anew"
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_a_lossless_mode_packs_no_values(running):
    plain = trained(compiled(Chain()))
    session = running(mode="Lossless")
    ours = trained(torch.compile(Chain(), backend=dividing(lossy=session.config.lossy)))
    assert TICKETS.keeper is None
    assert session.figures.raw["Compiled"] > 0
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_a_loss_that_is_dropped_leaves_nothing(running):
    running()
    model = compiled(Chain())
    loss = model(rows()).square().mean()
    assert len(TICKETS) > 0
    del loss
    gc.collect()
    assert len(TICKETS) == 0


@torch._functorch.config.patch(donated_buffer=False)  # else the compiler refuses
def test_another_backward_pass_reads_the_same_copies(running):
    running()
    model = compiled(Chain())
    trained(model, steps=2)
    model.zero_grad()
    loss = model(rows()).square().mean()
    loss.backward(retain_graph=True)
    once = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    loss.backward()
    assert all(torch.equal(weight.grad, before) for weight, before in zip(model.parameters(), once, strict=True))


def test_batches_of_other_sizes_are_packed_too(running):
    """The compiler makes code for any size when it sees a second one."""
    sizes = [32, 24, 28, 20, 24, 28]

    def batch(seed: int) -> torch.Tensor:
        return rows(sizes[seed], seed)

    plain = trained(Chain(), batch)
    session = running()
    assert max(off(trained(compiled(Chain()), batch), plain).values()) < 0.05
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 2
    assert session.figures.compressed == 3 * len(sizes), "each step packs three values"
    assert session.figures.violations == 0


class Tied(nn.Module):
    """Two layers read one value, close to each other; the first one's weight is used elsewhere too, so its gradient is a sum that
    is made at the end.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tied, self.other, self.last = nn.Linear(16, 16, bias=False), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.tied(x.sin())
        return self.last(self.other(h) + self.tied(h).tanh())


def test_a_gradient_that_is_summed_later_stays_behind_its_parts(running):
    plain, session = trained(Tied()), running()
    assert 0 < max(off(trained(compiled(Tied())), plain).values()) < 0.05
    assert session.figures.compressed > 0
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


class TurnedSigns(nn.Module):
    """The compiler saves the transpose, for a product and for signs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line, self.weight = nn.Linear(16, 32), nn.Parameter(torch.randn(32, 4))

    def forward(self, x):
        h = self.line(x.flatten(0, 1))
        signs = torch.where(h.t() > 0, h.t() * 64, h.t() / 8).mean()  # before the product, so its pass backward is the later one
        return signs + (h @ self.weight).square().mean()


@pytest.mark.parametrize("count", [2, 3])
def test_signs_of_a_transpose_are_its_own(running, count):
    def batch(seed: int) -> torch.Tensor:
        return torch.randn(2 * count, 8 if count == 2 else 5, 16, generator=torch.Generator().manual_seed(seed))

    plain = trained(TurnedSigns(), batch, steps=2)
    running()
    assert max(off(trained(compiled(TurnedSigns()), batch, steps=2), plain).values()) < 0.05


def test_a_part_of_a_larger_tensor_is_packed_as_it_is(running):
    """What the compiler hands over need not fill its memory."""
    session = running(verify=True)
    layer, wide = nn.Linear(16, 4), torch.randn(32, 48)
    how = to_text([ReadAs(LEFT, 0)])
    session._forwards._regions.enter(Call(layer, "ErrorBounded", outermost=layer))
    ticket = operators.PACK(wide[:, 8:24], [layer.weight.detach().as_strided((1,), (1,))], how, 0)
    found = operators.UNPACK(ticket, [torch.randn(32, 4)], 0, 0, [16], [0, 1])
    assert 0 < (found - wide[:, 8:24]).abs().max() < 0.2
    assert session.figures.violations == 0 < session.figures.checked
    assert not session.figures.raw


@pytest.mark.parametrize("layout", ["channels last", "permuted"])
@pytest.mark.parametrize("packs", [True, False])
def test_a_product_is_given_a_matrix_whatever_lies_in_memory(running, layout, packs):
    wide = torch.randn(2, 8, 12, 12)
    x = wide.to(memory_format=torch.channels_last) if layout == "channels last" else wide.permute(3, 0, 1, 2)
    layer = nn.Linear(x.shape[-1], 4)
    if packs:
        session = running()
        session._forwards._regions.enter(Call(layer, "ErrorBounded", outermost=layer))
    rows, features = x.numel() // x.shape[-1], x.shape[-1]
    ticket = operators.PACK(x, [layer.weight.detach().as_strided((1,), (1,))], to_text([ReadAs(LEFT, 0)]), 0)
    found = operators.UNPACK(ticket, [torch.randn(rows, 4)], 0, 0, [features], [0, 1])
    assert (found - x.reshape(rows, features)).abs().max() < (0.2 if packs else 1e-9)


@pytest.mark.parametrize("broken", ["_turn", "_served"])
def test_a_graph_that_cannot_be_rewritten_compiles_as_it_is(running, monkeypatch, broken):
    """A copy of another shape, or a reader that nobody serves."""
    make = Chain if broken == "_turn" else Signs
    batch = rows if broken == "_turn" else images
    plain = trained(compiled(make()), batch)
    session, said = running(), []
    wrong = (lambda graph, matrix: matrix) if broken == "_turn" else (lambda *_: ["nobody"])
    monkeypatch.setattr(rewriting if broken == "_turn" else packable, broken, wrong)
    ours = trained(torch.compile(make(), backend=dividing(said.append)), batch)
    assert said == ["RewriteFailedValueError" if broken == "_turn" else "RewriteFailedRuntimeError"]
    assert all(torch.equal(ours[name], plain[name]) for name in plain)
    assert not session.figures.compressed
