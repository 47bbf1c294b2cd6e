"""Where compression must step aside, and what must be left as it was."""

import copy

import pytest
import torch
from torch import nn

from kompakt_runtime.compat.hooks import innermost
from tests.support.runtime.small_training import Holder, batch, failed, gradients, network, ours_and_plain, same, warm_up


class Cut(BaseException):
    """torch calls hooks of a module that raised an Exception, and of no other."""


def a_call_that_is_cut_off_and_caught(model, x):
    def cut(*_):
        raise Cut

    model[2].forward = cut
    try:
        model(x)
    except Cut:
        del model[2].forward
    return model(x)


def a_functional_transform_inside(model, x):
    slope = torch.func.grad(lambda scale: (scale * x).square().sum())(torch.ones(()))
    return model(x) * slope.detach()


class Own(torch.Tensor):
    """A tensor of a class of its own, as packages make them."""


def tensors_of_any_other_kind(model, x):
    spectrum = torch.fft.fft(x.mean(1))
    spread = torch.sparse.mm(torch.eye(8).to_sparse(), x.flatten(1))
    own = x.mean().as_subclass(Own)
    nothing = (x[:0] * x[:0]).sum()
    rest = (spectrum * spectrum.conj()).real.mean() + spread.square().mean() + (own * own).as_subclass(torch.Tensor) + nothing
    return model(x) * rest


def hooks_of_the_user_inside(model, x):
    with torch.autograd.graph.save_on_cpu():
        return model(x)


@pytest.mark.parametrize(
    ("use", "counted"),
    [
        (a_call_that_is_cut_off_and_caught, lambda figures: figures.plain_bytes > 0),
        (a_functional_transform_inside, lambda figures: figures.plain_bytes > 0),
        (tensors_of_any_other_kind, lambda figures: figures.raw["NotPlainTensor"] >= 2),
        (hooks_of_the_user_inside, lambda figures: figures.plain_bytes == 0),
    ],
)
def test_a_model_runs_as_without_us(running, use, counted):
    model = network()
    plain = gradients(Holder(model, use), batch())
    session = running(mode="Lossless")
    assert same(gradients(Holder(model, use), batch()), plain)
    assert innermost() is None
    assert not session._forwards._threads.calls
    assert not failed(session)
    assert counted(session.figures)


def test_a_module_that_calls_itself_is_one_forward(running):
    def twice(module, x):
        return module.model(x) if x.requires_grad and x.grad_fn else module(x * 1)

    whole = Holder(network(), lambda _, x: twice(whole, x))
    session = running(mode="Lossless")
    assert same(*ours_and_plain(whole, session))
    assert session.figures.forwards == 1
    assert innermost() is None


def test_a_user_s_own_hooks_win(running):
    model, session = network(), running()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        ours = gradients(model, batch())
    assert (session.figures.forwards, session.figures.raw["UserHooks"]) == (0, 1)
    session.stop()
    assert same(ours, gradients(model, batch()))


def test_hooks_entered_inside_a_forward_and_left_after_it_are_not_popped_and_ours_go_with_the_next(running):
    """As a user's own forward pre-hook and forward hook do it: ours come before both."""
    model, session = network(), running(mode="Lossless")
    theirs, found = torch.autograd.graph.save_on_cpu(), []
    handles = [
        model.register_forward_pre_hook(lambda *_: theirs.__enter__() and None),
        model.register_forward_hook(lambda *_: (found.append(innermost()[0]), theirs.__exit__())[1]),
    ]
    plain = gradients(model, batch())
    assert found == [theirs.pack_hook]
    for handle in handles:
        handle.remove()
    session.figures.forget()
    assert same(gradients(model, batch()), plain)
    assert innermost() is None
    assert session.figures.plain_bytes > 0
    assert "UserHooks" not in session.figures.raw


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_tracing_sees_no_hooks(running):
    def traced() -> list[str]:
        return [node.kind() for node in torch.jit.trace(network(), batch()).inlined_graph.nodes()]

    wanted = traced()
    session = running()
    assert traced() == wanted
    assert session.figures.forwards == 0


def test_after_a_stop_torch_is_as_before(running):
    ask = torch.autograd.graph.disable_saved_tensors_hooks
    session = running()
    for _ in range(2):
        session.pause()
        assert torch.autograd.graph.disable_saved_tensors_hooks is ask
        session.start()
    gradients(Holder(network(), a_functional_transform_inside), batch())
    session.stop()
    assert torch.autograd.graph.disable_saved_tensors_hooks is ask


def test_where_hooks_are_switched_off_a_model_runs_as_without_us(running):
    model, session = network(), running()
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        gradients(model, batch())
    assert session.figures.forwards == 0
    assert session.figures.raw == {"HooksDisabled": 1}


LOSSLESS, SUGGESTING, MEASURING = {"mode": "Lossless"}, {"mode": "Lossless", "batch": "Suggest"}, {"bound": None}
BREAKABLE = [
    *(
        (name, LOSSLESS, "PackFailed")
        for name in ("hooks.pair.StorageLedger.entry", "hooks.pair.decide", "hooks.pair.Handle.wait")
    ),
    *((name, {}, "PackFailed") for name in ("hooks.pair.is_parameter", "hooks.forwards.saved_by_compiled_code")),
    *((name, {}, "SettleFailed") for name in ("bounds.site.Site.bound_for", "hooks.settling.decide", "hooks.settling.nbytes")),
    ("hooks.actions.StorageActions.conclude", LOSSLESS, "SettleFailed"),
    ("saved.entry.encode", {}, "EncodeFailed"),
    *(
        (name, MEASURING, "SettleFailed")
        for name in ("bounds.sites.Sites.of", "bounds.site.Site.watch", "hooks.settling.contraction")
    ),
    ("cost.overhead.Overhead.stepped", MEASURING, "HookFailed"),
    ("session.after_step", MEASURING, "ObserveFailed"),
    *(
        (f"cost.headroom.Headroom.{name}", SUGGESTING, "SuggestFailed")
        for name in ("entered", "inside", "unpacking", "unpacked", "stepping", "stepped")
    ),
]


@pytest.mark.parametrize(("broken", "settings", "reason"), [pytest.param(*row, id=row[0]) for row in BREAKABLE])
def test_whatever_of_ours_fails_training_is_plain_training_and_the_failure_is_counted(
    running, monkeypatch, broken, settings, reason
):
    def trained() -> dict[str, torch.Tensor]:
        model = network()
        warm_up(model)
        return gradients(model, batch())

    plain = trained()
    if settings is MEASURING:  # packs nothing
        monkeypatch.setattr("kompakt_runtime.bounds.site.Site.bound_for", lambda *_: None)
    monkeypatch.setattr(f"kompakt_runtime.{broken}", lambda *_, **__: 1 / 0)
    session = running(**{name: value for name, value in settings.items() if name != "bound"})
    assert same(trained(), plain)
    assert innermost() is None
    assert set(failed(session)) == {f"{reason}ZeroDivisionError"}


def test_a_layer_s_bounds_need_no_figure_of_what_they_did(running, monkeypatch):
    model, session = network(), running()
    monkeypatch.setattr("kompakt_runtime.bounds.sigma.Contraction.gradient", lambda *_: 1 / 0)
    warm_up(model)
    session.figures.forget()
    gradients(model, batch())
    assert session.figures.compressed == 2
    assert not failed(session)


@pytest.mark.parametrize("broken", ["bounds.sums._plus", "bounds.site.mean_magnitude"])
def test_a_measurement_that_fails_in_a_backward_pass_ends_nothing_and_is_made_again(running, monkeypatch, broken):
    model = network()
    plain = gradients(model, batch())
    session = running()
    with monkeypatch.context() as patched:
        patched.setattr(f"kompakt_runtime.{broken}", lambda *_: 1 / 0)
        assert torch.equal(gradients(model, batch())["input"], plain["input"])
    assert session.figures.raw["ObserveFailedZeroDivisionError"] == 2, "of layers whose input is packed"
    warm_up(model)
    assert all(site.bound is not None for site in session.sites._sites.values())


def test_weights_made_on_each_pass_are_left_alone(running):
    model = network()
    nn.utils.parametrizations.weight_norm(model[2])
    session = running()
    warm_up(model)
    session.figures.forget()
    gradients(model, batch())
    assert session.figures.layers.keys() == {"5"}


# The compiler itself looks at .grad of a tensor that enters a compiled module in the middle of a model.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("nested", [False, True])
def test_compiled_regions_pass_through(running, nested):
    plain_model = network() if not nested else nn.Sequential(network()[:3], network()[3:])
    model = copy.deepcopy(plain_model)
    session = running(mode="Lossless")
    if nested:
        model[1] = torch.compile(model[1], backend="aot_eager")
    else:
        model = torch.compile(model, backend="aot_eager")
    ours = gradients(model, batch())
    session.stop()
    wanted = gradients(plain_model, batch())
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours.values(), wanted.values(), strict=True))
    assert session.figures.raw["Compiled"] == 1
    assert not failed(session)
