"""Compiled graphs also pack what gradients which go on are made of, as far as the layers below bear it."""

import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.compiled import measured, reading
from kompakt_runtime.compiled.operators import TICKETS
from kompakt_runtime.compiled.programs import of_program
from kompakt_runtime.config import SiteOverride
from kompakt_runtime.saved.noise import Noise
from kompakt_runtime.scope.exclusions import exclude
from tests.support.runtime.compiled_models import Curved, Gated, Normed, off, rows, trained
from tests.support.runtime.compiling import compiled

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value, self.out = (nn.Linear(16, 32) for _ in range(4))
        self.out = nn.Linear(32, 16)

    def forward(self, x):
        heads = [one(x).unflatten(-1, (2, 16)).transpose(1, 2) for one in (self.query, self.key, self.value)]
        return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class NormedPictures(nn.Module):
    """The gradient behind the norm needs a convolution that reads what is made of the same value."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.norm, self.two = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)

    def forward(self, x):
        return self.two(self.norm(self.one(x.unflatten(-1, (4, 4))[:, :3].repeat(1, 1, 4, 4))).relu())


MODELS = {"gated": Gated, "normed": Normed, "attending": Attending, "curved": Curved}


def operations(session):
    return {one.name: one for one in session.hooks.operations}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_gradients_are_off_by_about_as_much_as_without_the_compiler(running, make):
    plain = trained(make())
    eager = running()
    allowed = off(trained(make()), plain)
    eager.stop()
    session = running()
    model = compiled(make())
    error = off(trained(model), plain)
    assert 0 < error < 2 * allowed
    assert operations(session)
    assert all(one.bound is not None for one in session.hooks.operations)
    assert session.figures.violations == 0 < session.figures.checked
    assert not [reason for reason in session.figures.raw if "Failed" in reason]
    del model
    gc.collect()
    assert len(TICKETS) == 0


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_more_is_packed_than_where_gradients_of_activations_must_be_exact(running, make):
    exact = running(activation_gradients="Exact")
    trained(compiled(make()))
    exact.stop()
    session = running()
    trained(compiled(make()))
    assert not exact.hooks.operations
    assert session.figures.compressed > exact.figures.compressed


def test_what_a_place_gives_again_is_what_the_graph_gives(running, monkeypatch):
    """The part of the graph that is run once more is the whole of what makes these gradients."""
    found = []
    see = measured.ReadOnce.see

    def seen(self, value, inputs, text, noise):
        program = of_program(text)
        exact = program.run(inputs, value)
        found.append([exact[number] for number in program.deltas])
        return see(self, value, inputs, text, noise)

    monkeypatch.setattr(measured.ReadOnce, "see", seen)
    running()
    model, grown = Gated(), {}
    model.gate.weight.register_hook(lambda g: grown.setdefault("gate", g))
    model.up.weight.register_hook(lambda g: grown.setdefault("up", g))
    batch = rows()
    compiled(model)(batch).square().mean().backward()
    flat = batch.flatten(0, 1)
    made = [delta.reshape(-1, 64).mT @ flat for deltas in found for delta in deltas]
    assert len(made) >= 3  # of the gate and of what it is multiplied with
    for name in ("gate", "up"):
        assert any(torch.allclose(one, grown[name], rtol=1e-3, atol=1e-6) for one in made), name


def test_a_bound_follows_what_noise_was_seen_to_do(running, monkeypatch):
    """Twice the noise leaves half the bound."""
    bounds = []
    for times in (1.0, 2.0):
        widened = Noise.widened
        monkeypatch.setattr(Noise, "widened", lambda self, t, b, w=widened, k=times: w(self, t, k * b))
        session, model = running(), compiled(Curved())
        trained(model, steps=3)
        bounds.append({name: one.bound for name, one in operations(session).items()})
        session.stop()
        monkeypatch.undo()
        torch._dynamo.reset()
    one, two = bounds
    assert one.keys() == two.keys()
    for name in one:
        assert two[name] == pytest.approx(one[name] / 2, rel=0.3)


def test_a_layer_whose_operand_is_computed_again_is_measured(running):
    session, code = running(), compiled(Curved())
    trained(code)
    bounds = {site.name: site.bound for site in session.sites}
    session.stop()
    eager, model = running(), Curved()
    trained(model)
    wanted = {site.name: site.bound for site in eager.sites}
    assert bounds["last"] == pytest.approx(wanted["last"], rel=0.1)


def test_a_norms_weight_is_no_layer(running):
    session, model = running(), compiled(Normed())
    trained(model)
    assert "norm" not in {site.name for site in session.sites}
    assert any(name.endswith("[norm]") for name in operations(session))


def test_where_an_inputs_gradient_is_asked_for_values_stay(running):
    """A layer's input may be anything's: what asks for its gradient as a leaf uses it itself."""
    session, model = running(), compiled(Curved())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch, plain = rows().requires_grad_(), rows().requires_grad_()
    for given, code in ((batch, model), (plain, Curved())):
        code(given).square().mean().backward()
    optimizer.step()
    assert session.figures.raw["InputGradient"]
    torch.testing.assert_close(batch.grad, plain.grad)


def test_blocks_that_are_compiled_in_an_eager_model_pack(running):
    """The gradient of what such a block is given goes on, and may be off as without the compiler."""
    model = nn.Sequential(nn.Linear(16, 16), Curved())
    before = {name: one.clone() for name, one in model.state_dict().items()}
    plain = trained(model)
    model.load_state_dict(before)
    session = running()
    model[1] = compiled(model[1])
    ours = {name.replace("_orig_mod.", ""): one for name, one in trained(model).items()}
    assert 0 < off(ours, plain) < 0.1
    assert any(name.startswith("1.") and "pointwise" in name for name in operations(session))


@pytest.mark.parametrize("through", [
    lambda t: F.gelu(t) - t.amax(-1, keepdim=True), lambda t: t / t.abs().amax(), lambda t: (t - t.max()).exp(),
], ids=["by row", "scaled", "shifted"])  # fmt: skip
def test_the_largest_number_stays_the_largest(running, through):
    """Nothing is equal to it where its copy is another number."""
    plain, session = trained(Curved(through)), running()
    model = compiled(Curved(through))
    ours = trained(model)
    assert all(gradient.isfinite().all() for gradient in ours.values())
    assert off(ours, plain) < 0.1
    assert session.figures.violations == 0


def test_weights_in_another_type_are_no_activations(running):
    session, model = running(), compiled(Gated())
    with torch.autocast("cpu", torch.bfloat16):
        trained(model)
    packed = {name for name, row in session.figures.layers.items() if row.saved}
    assert packed
    assert not [name for name in operations(session) if name.endswith((" 2]", " 3]"))]


class TwoScales(nn.Module):
    """The same value is scaled by two weights, whose gradients bear different errors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)
        self.small, self.large = nn.Parameter(torch.ones(32)), nn.Parameter(torch.ones(32))

    def forward(self, x):
        h = self.first(x)
        return self.last(self.small * h + self.large * torch.sin(10 * h))


def test_every_weight_that_a_value_is_scaled_by_counts(running):
    plain = trained(TwoScales(), steps=8)
    running()
    assert off(trained(compiled(TwoScales()), steps=8), plain) < 0.1


class Crossed(nn.Module):
    """Each factor's gradient needs what is made of the other first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.p, self.q = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        a, b = F.silu(self.a(x)), F.silu(self.b(x))
        return b * self.p(a) + a * self.q(b)


@pytest.mark.parametrize("through", [
    lambda: nn.Sequential(nn.LayerNorm(64), nn.ReLU()), lambda: nn.Tanh(),
], ids=["signs of what a norm makes", "tanh"])  # fmt: skip
def test_signs_are_asked_of_what_is_read_besides(running, through):
    plain = trained(Curved(through()))
    session, model = running(), compiled(Curved(through()))
    assert off(trained(model), plain) < 0.1
    assert session.figures.compressed > 0


def test_values_that_need_each_other_stay_and_the_others_are_packed(running):
    plain = trained(Crossed())
    session, model = running(), compiled(Crossed())
    assert 0 < off(trained(model), plain) < 0.1
    assert session.figures.compressed > 0


def test_a_layer_that_reads_what_the_code_is_given_is_measured(running):
    session, model = running(), compiled(Curved())
    trained(model)
    assert {site.name: site.bound is not None for site in session.sites} == {"first": True, "last": True}


@pytest.mark.parametrize("how", ["override", "exclude"])
def test_a_norm_is_kept_out(running, how):
    model = Normed()
    settings = {"overrides": (SiteOverride("norm", "None"),)} if how == "override" else {}
    if how == "exclude":
        exclude(model.norm)
    session, code = running(**settings), compiled(model)
    trained(code)
    assert not [name for name in operations(session) if "norm" in name]


def test_norms_that_are_trained_alone_are_no_layers(running):
    """Nothing says what errors their weights' gradients bear."""
    model = Normed()
    for layer in (model.first, model.inner, model.last):
        layer.requires_grad_(False)
    session = running()
    trained(compiled(model))
    assert [site.name for site in session.sites] == []


def test_an_override_keeps_a_layers_values_as_they_are(running):
    session, model = running(overrides=(SiteOverride("first", "None"),)), compiled(Curved())
    trained(model)
    assert operations(session) == {}
    assert not any(name.startswith("first") for name in operations(session))


def test_every_pass_of_a_step_counts(running):
    plain = trained(Gated(), passes=3)
    session, model = running(), compiled(Gated())
    assert 0 < off(trained(model, passes=3), plain) < 0.1
    assert operations(session)
    assert all(one.bound is not None for one in session.hooks.operations)


def test_what_needs_itself_stays_as_it_is(running):
    plain = trained(NormedPictures())
    session = running()
    assert off(trained(compiled(NormedPictures())), plain) < 0.1
    assert session.figures.compressed > 0
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


class Masked(Attending):
    """What tokens may look at is no activation, and infinite where they may not."""

    def forward(self, x):
        query, key, value = (one(x).unflatten(-1, (2, 16)).transpose(1, 2) for one in (self.query, self.key, self.value))
        apart = (x[..., 0].unsqueeze(-1) * x[..., 0].unsqueeze(-2)).unsqueeze(1)
        mask = torch.where(apart > 4, -torch.inf, apart)
        return self.out(F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(2))


def test_what_nothing_was_learnt_for_stays_as_it_is(running):
    session, plain = running(), Masked()
    model = compiled(Masked())
    ours = trained(model)
    session.stop()
    assert 0 < off(ours, trained(plain)) < 0.1
    assert operations(session)
    assert "NoBound" not in session.figures.raw


def test_random_numbers_are_not_drawn_again(running):
    """What draws them is no part that can be run once more."""
    session, model = running(), compiled(Curved(lambda t: F.gelu(t) * torch.rand_like(t)))
    trained(model)
    assert session.figures.compressed > 0
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


@pytest.mark.parametrize("dynamic", [True, False])
def test_batches_of_other_sizes(running, dynamic):
    def batch(seed: int) -> torch.Tensor:
        return rows(20 + 8 * (seed % 3), seed)

    plain, session, model = trained(Gated(), batch=batch), running(), compiled(Gated(), dynamic=dynamic)
    assert 0 < off(trained(model, batch=batch), plain) < 0.1
    assert operations(session)


def test_what_waits_waits_in_order():
    graph = torch.fx.Graph()
    a = graph.placeholder("a")
    late = graph.call_function(torch.ops.aten.neg.default, (a,))
    early = graph.call_function(torch.ops.aten.exp.default, (a,))
    graph.output((late, early))
    places = {node: place for place, node in enumerate(graph.nodes)}
    late.args = (early,)
    reading._sort(graph, places)
    graph.lint()
    assert [node.name for node in graph.nodes] == ["a", "exp_default", "neg_default", "output"]
    early.args = (late,)
    with pytest.raises(ValueError, match="wait for each other"):
        reading._sort(graph, places)


def test_inductor_packs_them_too(running):
    plain = trained(Gated())
    session, model = running(), torch.compile(Gated())
    assert 0 < off(trained(model), plain) < 0.1
    assert len(operations(session)) >= 2
