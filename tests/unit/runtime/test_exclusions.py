"""Where compression must step aside, and what must be left as it was."""

import concurrent.futures
import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from kompakt_runtime.autograd_state import innermost
from kompakt_runtime.headroom import Headroom
from tests.support.runtime.small_training import Holder, batch, failed, gradients, network, same, warm_up


def test_inference_packs_nothing(running):
    model, session = network(), running()
    with torch.no_grad():
        model(batch())
    model.eval()(batch())
    assert session.figures.forwards == 0


def test_an_exception_in_a_forward_leaves_nothing_behind(running):
    model, session = network(), running()
    for wrong in (torch.randn(2, 5, 6, 6), torch.randn(2, 3, 9, 9)):
        with pytest.raises(RuntimeError, match=r"channels|shapes"):
            model(wrong)
        assert innermost() is None
    warm_up(model)
    session.figures.forget()
    gradients(model, batch())
    assert session.figures.compressed == 2


def test_a_user_s_own_hooks_win(running):
    model = network()
    plain = gradients(model, batch())
    session = running()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        assert same(gradients(model, batch()), plain)
    assert session.figures.forwards == 0
    assert session.figures.raw["UserHooks"] == 1

    def inside(model, x):
        with torch.autograd.graph.save_on_cpu():
            return model(x)

    assert same(gradients(Holder(model, inside), batch()), {f"model.{n}" if n != "input" else n: g for n, g in plain.items()})
    assert session.figures.plain_bytes == 0


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


def test_a_call_that_is_cut_off_and_caught_leaves_the_calls_around_it_in_order(running):
    class Cut(BaseException):
        """torch calls hooks of a module that raised an Exception, and of no other."""

    def cut(*_):
        raise Cut

    def around(model, x):
        model[2].forward = cut
        try:
            model(x)
        except Cut:
            del model[2].forward
        return model(x)

    model = network()
    plain = gradients(model, batch())
    session = running(mode="Lossless")
    ours = gradients(Holder(model, around), batch())
    assert innermost() is None
    assert not session._forwards._threads.calls
    assert same({name.removeprefix("model."): gradient for name, gradient in ours.items()}, plain)
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


def test_a_module_that_calls_itself_is_one_forward(running):
    def twice(module, x):
        return module.model(x) if x.requires_grad and x.grad_fn else module(x * 1)

    whole = Holder(network(), None)
    whole.function = lambda _, x: twice(whole, x)
    plain = gradients(whole, batch())
    session = running(mode="Lossless")
    assert same(gradients(whole, batch()), plain)
    assert session.figures.forwards == 1
    assert innermost() is None


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
    gradients(Holder(network(), lambda model, x: model(x) * torch.func.grad(torch.sin)(torch.ones(()))), batch())
    session.stop()
    assert torch.autograd.graph.disable_saved_tensors_hooks is ask


def test_where_hooks_are_switched_off_a_model_runs_as_without_us(running):
    model, session = network(), running()
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        gradients(model, batch())
    assert session.figures.forwards == 0
    assert session.figures.raw == {"HooksDisabled": 1}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_regions_train_as_without_us(running, reentrant):
    def halves(model, x):
        return model[3:](checkpoint(model[:3], x.requires_grad_(), use_reentrant=reentrant))

    model = network()
    plain = gradients(Holder(model, halves), batch())
    lossless = running(mode="Lossless")
    assert same(gradients(Holder(model, halves), batch()), plain)
    lossless.stop()
    session = running()
    warm_up(Holder(model, halves))
    ours = gradients(Holder(model, halves), batch())["model.5.weight"]
    session.stop()
    plain = gradients(Holder(model, halves), batch())["model.5.weight"]
    assert 0 < (ours - plain).norm() < 0.1 * plain.norm()


def test_functional_transforms_run_inside_a_module(running):
    def inside(model, x):
        slope = torch.func.grad(lambda scale: (scale * x).square().sum())(torch.ones(()))
        return model(x) * slope.detach()

    model = network()
    plain = gradients(Holder(model, inside), batch())
    session = running(mode="Lossless")
    assert same(gradients(Holder(model, inside), batch()), plain)
    assert session.figures.plain_bytes > 0, "ours were active around the transform"


def test_a_failing_codec_leaves_plain_training(running, monkeypatch):
    model, session = network(), running()
    warm_up(model)

    def broken(_x, _bound):
        raise MemoryError("no room")

    monkeypatch.setattr("kompakt_runtime.entry.encode", broken)
    ours = gradients(model, batch())
    session.stop()
    assert same(ours, gradients(model, batch()))
    assert session.figures.raw["EncodeFailedMemoryError"] == 2


@pytest.mark.parametrize("broken", ["hooks.is_parameter", "forwards.saved_by_compiled_code"])
def test_a_failing_hook_leaves_plain_training(running, monkeypatch, broken):
    model = network()
    plain = gradients(model, batch())
    session = running()
    monkeypatch.setattr(f"kompakt_runtime.{broken}", lambda _: 1 / 0)
    assert same(gradients(model, batch()), plain)
    assert session.figures.raw["PackFailedZeroDivisionError"] > 0


@pytest.mark.parametrize("broken", ["sites.Sites.of", "sites.Site.see_output", "session.after_step", "overhead.Overhead.stepped"])
def test_a_module_s_or_optimizer_s_hook_that_fails_changes_no_gradient_and_no_step(running, monkeypatch, broken):
    def step(model) -> dict[str, torch.Tensor]:
        found = gradients(model, batch())
        torch.optim.SGD(model.parameters(), lr=1e-3).step()
        return {**found, **{f"new {name}": weight.detach().clone() for name, weight in model.named_parameters()}}

    plain = step(network())
    session = running()
    monkeypatch.setattr("kompakt_runtime.sites.Site.bound_for", lambda *_: None)  # measures, packs nothing
    monkeypatch.setattr(f"kompakt_runtime.{broken}", lambda *_: 1 / 0)
    assert same(step(network()), plain)
    assert innermost() is None
    assert [
        reason for reason in session.figures.raw if reason in ("HookFailedZeroDivisionError", "ObserveFailedZeroDivisionError")
    ]


def test_a_layer_s_bounds_need_no_figure_of_what_they_did(running, monkeypatch):
    model, session = network(), running()
    monkeypatch.setattr("kompakt_runtime.sites.weight_gradient", lambda *_: 1 / 0)
    warm_up(model)
    session.figures.forget()
    gradients(model, batch())
    assert session.figures.compressed == 2
    assert not failed(session)


@pytest.mark.parametrize("broken", ["entered", "inside", "unpacking", "unpacked", "stepping", "stepped"])
def test_a_batch_that_cannot_be_suggested_ends_nothing(running, monkeypatch, broken):
    def run() -> dict[str, torch.Tensor]:
        model = network()
        warm_up(model)
        return gradients(model, batch())

    plain = run()
    session = running(mode="Lossless", batch="Suggest")
    monkeypatch.setattr(Headroom, broken, lambda *_: 1 / 0)
    assert same(run(), plain)
    assert session.figures.raw["SuggestFailedZeroDivisionError"] > 0


@pytest.mark.parametrize("broken", ["sums._plus", "sites.mean_magnitude"])
def test_a_measurement_that_fails_in_a_backward_pass_ends_nothing_and_is_made_again(running, monkeypatch, broken):
    model = network()
    plain = gradients(model, batch())
    session = running()
    model.zero_grad()
    x = batch().requires_grad_()
    loss = model(x).square().sum()
    with monkeypatch.context() as patched:
        patched.setattr(f"kompakt_runtime.{broken}", lambda *_: 1 / 0)
        loss.backward()
    assert torch.equal(x.grad, plain["input"])
    assert session.figures.raw["ObserveFailedZeroDivisionError"] == 3
    warm_up(model)
    assert all(site.bound is not None for site in session.sites._sites.values())


class Own(torch.Tensor):
    """A tensor of a class of its own, as packages make them."""


def odd_tensors(model, x):
    spectrum = torch.fft.fft(x.mean(1))
    spread = torch.sparse.mm(torch.eye(8).to_sparse(), x.flatten(1))
    own = x.mean().as_subclass(Own)
    nothing = (x[:0] * x[:0]).sum()
    rest = (spectrum * spectrum.conj()).real.mean() + spread.square().mean() + (own * own).as_subclass(torch.Tensor) + nothing
    return model(x) * rest


def test_tensors_of_any_other_kind_train_as_without_us_and_are_counted(running):
    model = network()
    plain = gradients(Holder(model, odd_tensors), batch())
    session = running(mode="Lossless")
    assert same(gradients(Holder(model, odd_tensors), batch()), plain)
    assert session.figures.raw["NotPlainTensor"] >= 2
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


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
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


def test_threads_do_not_disturb_one_another(running):
    session = running()
    models = [network() for _ in range(2)]
    for model in models:
        warm_up(model)
    session.figures.forget()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda model: gradients(model, batch()), models))
    assert same(*found)
    assert session.figures.compressed == 4
