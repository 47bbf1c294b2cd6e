"""What autograd allows, with inputs of nonlinear operations packed: a network of a norm of each kind, GELU and attention."""

import concurrent.futures
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kompakt_runtime.compat.hooks import innermost
from kompakt_runtime.scope.exclusions import uncompressed
from tests.support.runtime.small_training import Holder, batch, double_backward, failed, gradients, ours_and_plain, same, warm_up

OPERANDS = {"attention [attention key query value]", "attention [attention output]"}
KINDS = {"images.1 [norm]", "images.2 [gelu]", "before [norm]", *OPERANDS}


class Heads(nn.Module):
    """Two heads of attention whose queries, keys and values share one storage."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).view(len(x), -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))


class Mixed(nn.Module):
    def __init__(self, around: Callable = lambda part, x: part(x)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.images = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU())
        self.before, self.attention, self.last = nn.LayerNorm(8), Heads(), nn.Linear(8, 4)
        self.around = around

    def forward(self, x):
        tokens = self.around(self.images, x).flatten(2).transpose(1, 2)
        mixed = tokens + self.around(self.attention, self.before(tokens))
        return self.last(mixed.mean(1))


def packed(session) -> set[str]:
    """Or computed again within a bound, which is that of the operation that reads it."""
    layers = session.figures.layers
    own = {name: name.removesuffix(" [derived]") for name, row in layers.items() if name.endswith("]") and row.plain}
    return {operation for operation in own.values() if operation.endswith("]") and layers[operation].bound is not None}


def ready(model, running, **settings):
    """A session whose bounds are measured; statistics of norms stand still, for comparisons."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.0
    session = running(activation_gradients="Bounded", **settings)
    warm_up(model)
    session.figures.forget()
    return session


def near(ours: dict, plain: dict, nothing: str = "", rounding: float = 1e-4) -> bool:
    """No gradient is far off; that of the input moved, so something was lossy.

    nothing: a weight whose gradient is zero but for what errors leave, `rounding` as a share of all gradients: a bias before
    BatchNorm.
    """
    assert ours.keys() == plain.keys()
    whole = torch.cat([g.flatten() for g in plain.values()]).norm()
    assert 0 < float((ours["input"] - plain["input"]).norm()) < 0.2 * float(plain["input"].norm())
    floor = {name: rounding if name == nothing else 1e-4 for name in plain}
    return all(float((ours[name] - plain[name]).norm()) < 0.2 * float(plain[name].norm()) + floor[name] * whole for name in plain)


def checkpointed(reentrant: bool) -> nn.Module:
    return Mixed(lambda part, x: checkpoint(part, x.requires_grad_() if x.is_leaf else x, use_reentrant=reentrant))


ROUNDING = torch.finfo(torch.bfloat16).eps
LEFT = 5e-4  # the error of this bias; that of the weight beside it is eight times as large


def in_bfloat16() -> nn.Module:
    def cast(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float()

    return Holder(Mixed(), cast)


# A recomputation without reentrance has hooks of its own; with it, the part is a model on its own in the backward pass.
@pytest.mark.parametrize(
    ("make", "kinds", "rounds"),
    [
        pytest.param(Mixed, KINDS, ("images.0.bias", LEFT), id="as it is"),
        pytest.param(lambda: checkpointed(False), {"before [norm]"}, (), id="recomputed"),
        pytest.param(lambda: checkpointed(True), KINDS, ("images.0.bias", LEFT), id="recomputed with reentrance"),
        pytest.param(in_bfloat16, {f"model.{kind}" for kind in KINDS}, ("model.images.0.bias", ROUNDING), id="autocast"),
    ],
)
def test_each_kind_is_packed_and_every_gradient_stays_near(running, make, kinds, rounds):
    model = make()
    session = ready(model, running)
    assert near(*ours_and_plain(model, session, leaf=False), *rounds)
    assert packed(session) == kinds
    if make is Mixed:  # Queries, keys and values are parts of one storage, and all of it.
        assert sum(session.figures.layers[name].plain for name in OPERANDS) == 8 * 36 * (24 + 8) * 4
    assert not failed(session)


@pytest.mark.parametrize("measured", [False, True])
def test_a_graph_that_is_kept_gives_the_same_twice(running, measured):
    model = Mixed()
    session = ready(model, running)
    for site in session.sites._sites.values():
        site.observing = measured
    loss = model(batch()).square().sum()
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    for operation in session.hooks.operations:
        operation.observing = False  # no noise is left from the first time
    second = torch.autograd.grad(loss, list(model.parameters()))
    assert all(map(torch.equal, first, second))
    assert packed(session) == KINDS
    assert not failed(session)


@pytest.mark.parametrize("measured", [False, True])
def test_a_second_derivative_stays_near(running, measured):
    # No kernel of attention knows a second derivative.
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.LayerNorm(6), nn.Flatten())
    session = ready(model, running)
    for site in session.sites._sites.values():
        site.observing = measured
    ours = double_backward(model, batch(), leaf=False)
    session.stop()
    assert near(ours, double_backward(model, batch(), leaf=False))
    assert session.figures.raw["DoubleBackward"] > 0
    assert packed(session) == {"1 [norm]", "2 [gelu]", "3 [norm]"}
    assert not failed(session)


def settle(model):
    """Until bounds stand: the first pass tells that somebody holds the batch. What a result's readers need of its source is known
    one pass later, and where the source is a result itself one more.
    """
    for _ in range(2):
        gradients(model, batch(), leaf=False)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_in_the_middle_of_a_forward_leaves_nothing_behind(running, error):
    def stop(part, x):
        if isinstance(part, Heads):
            part(x)
            raise error
        return part(x)

    model = Mixed()
    session = ready(model, running)
    settle(model)
    wanted = gradients(model, batch(), leaf=False)
    before = session.figures.forwards
    for _ in range(2):
        model.around = stop
        with pytest.raises(error):
            model(batch())
        # Of a KeyboardInterrupt torch tells nobody; it is noticed when the model is called again.
        assert error is KeyboardInterrupt or innermost() is None
        assert not session.hooks.ledger._entries, "no copy, no original"
        model.around = lambda part, x: part(x)
        assert same(gradients(model, batch(), leaf=False), wanted)
        assert innermost() is None
        assert not session._forwards._threads.calls
    assert session.figures.forwards == before + 4
    assert not failed(session)


def test_threads_do_not_disturb_one_another(running):
    models = [Mixed() for _ in range(2)]
    session = ready(models[0], running)
    warm_up(models[1])
    with concurrent.futures.ThreadPoolExecutor(1) as alone:
        list(alone.map(settle, models))
        plain = list(alone.map(lambda model: gradients(model, batch(), leaf=False), models))
    session.figures.forget()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda model: gradients(model, batch(), leaf=False), models))
    assert all(map(same, found, plain))
    assert packed(session) == KINDS
    assert not failed(session)


def test_inference_packs_nothing_and_looks_for_nothing(running, monkeypatch):
    model = Mixed()
    session = ready(model, running)
    before = session.figures.forwards
    monkeypatch.setattr(session.hooks.operations, "of", lambda *_: 1 / 0)
    with torch.no_grad():
        model(batch())
    with torch.inference_mode():
        model(batch())
    model.eval()
    out = model(batch())
    assert (session.figures.forwards, len(session.hooks.ledger._entries)) == (before, 0)
    assert not session.figures.raw
    out.sum().backward()


def test_a_user_s_own_hooks_inside_win(running):
    model, seen = Mixed(), []
    session = ready(model, running)

    def inside(part, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.shape), t.clone())[1], lambda t: t):
            return part(x)

    model.around = inside
    gradients(Holder(model, lambda model, x: model(F.silu(x * 2))), batch(), leaf=False)
    gradients(model, batch(), leaf=False)
    assert packed(session) == {"before [norm]"}, "only what runs outside of them"
    assert (8, 2, 36, 4) in seen
    assert not failed(session)


class Learned(nn.Module):
    """Norms, GELU and attention read parameters and buffers, as they are and in other guises."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.other = nn.Parameter(torch.randn(1, 6, 6)), nn.Parameter(torch.randn(8, 6))
        self.register_buffer("grid", torch.randn(8, 6))
        self.norm, self.line = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        x = self.line(x.mean(1))
        grid = self.grid[1:].view(7, 6)
        parts = [self.norm(self.other[1:]), F.gelu(self.other.t()), F.gelu(x.sum() * 0 + self.other.view(-1)[:1].expand(2))]
        parts += [F.layer_norm(grid, (6,), self.norm.weight), F.gelu(self.other.detach()) * self.norm.bias]
        x = x[:, None]
        mixed = F.scaled_dot_product_attention(self.query.expand(8, 1, 6, 6), x, x)
        return mixed.sum() + sum(part.square().sum() for part in parts)


def test_parameters_and_buffers_are_never_lossy(running):
    model = Learned()
    session = running(activation_gradients="Bounded")
    kept = []
    compress = session.hooks.ledger.later.compress
    session.hooks.ledger.later.compress = lambda entry, *how, **more: (
        kept.append(entry.storage.cdata), compress(entry, *how, **more)
    )[1]  # fmt: skip
    own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    warm_up(model)
    out = model(batch())
    assert kept, "keys and values of attention are packed"
    assert not own & set(kept)
    out.backward()


def test_what_is_kept_out_inside_a_module_stays_exact(running):
    def mixed(model, x):
        with uncompressed():
            x = F.gelu(model(x))
        return last(F.silu(x))

    last = nn.Conv2d(8, 4, 3)
    model = Holder(nn.Conv2d(3, 8, 3, padding=1), mixed)
    model.last = last
    session = ready(model, running)
    gradients(model, batch(), leaf=False)
    assert packed(session) == {"Holder [silu]"}
    assert "last" in session.figures.layers
    assert "model" not in session.figures.layers


def test_a_later_reader_of_the_values_brings_the_original_back(running):
    def both(model, x):
        hidden = model.images(x)
        tokens = hidden.flatten(2).transpose(1, 2).contiguous()
        return model.last(model.before(tokens) + tokens.cumprod(-1))

    inner = Mixed()
    model = Holder(inner, both)
    session = ready(model, running)
    out = model(batch())
    assert "model.before [norm]" not in {entry.layer for entry in session.hooks.ledger._entries.values() if entry.packed}
    out.square().sum().backward()
    assert not failed(session)
