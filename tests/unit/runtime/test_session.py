"""Training with compression on: what it may change and what it must not."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.config import SiteOverride
from kompakt_runtime.hooks import pair as hooks
from kompakt_runtime.scope.origin import is_parameter, self_check
from tests.support.runtime.small_training import Holder, batch, gradients, network, ours_and_plain, same, warm_up


def test_only_weight_gradients_move_and_only_a_little(running):
    model = network()
    session = running()
    warm_up(model)
    session.figures.forget()
    ours, plain = ours_and_plain(model, session)
    weights = {"2.weight", "5.weight"}
    for name in plain.keys() - weights:
        assert torch.equal(ours[name], plain[name]), f"{name} must not change by a bit"
    for name in weights:
        error = (ours[name] - plain[name]).abs().mean() / plain[name].abs().mean()
        assert 0 < error < 0.1, f"{name}: {error}"
    assert session.figures.compressed == 2
    assert session.figures.violations == 0
    assert "NotPlainTensor" not in session.figures.raw, "weights that convolutions save are nobody's loss"


@pytest.mark.parametrize(
    ("settings", "untried", "reason"), [({}, "MPS", "MPS"), ({"min_tensor_bytes": 1 << 20}, "", "Small")], ids=["device", "small"]
)
def test_what_is_small_or_on_a_device_that_nobody_tried_passes_through_and_is_counted(
    running, monkeypatch, settings, untried, reason
):
    """No such device is here, so CPUs are called one."""
    monkeypatch.setattr(hooks, "untried", lambda device: untried)
    model, session = network(), running(**settings)
    warm_up(model)
    assert same(*ours_and_plain(model, session))
    assert session.figures.compressed == 0
    assert session.figures.raw[reason] > 0


def test_training_on_a_cpu_does_not_ask_for_cuda(running, monkeypatch):
    """The question alone starts CUDA in this process, and forked children could not use it any more."""
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: asked.append(1) or False)
    session = running()
    warm_up(network())
    assert session.figures.compressed
    assert not asked


def test_no_error_is_shown_beside_a_bound_that_came_later_and_is_smaller(running):
    model, session = network(), running(verify=True)
    gradients(model, batch())
    first = {name: row.bound for name, row in session.figures.layers.items() if row.bound}
    for site in session.sites._sites.values():
        site.bound = site.unmeasured / 100
    gradients(model, batch())
    assert first.keys() == {"2", "5"}
    for name, bound in first.items():
        row = session.figures.layers[name]
        assert row.bound == bound
        assert bound / 100 < row.error <= row.bound


def test_one_entry_serves_the_relu_and_the_layer_after_it(running):
    model, session = network(), running()
    warm_up(model)
    before = session.figures.plain_bytes
    gradients(model, batch())
    # The input (a leaf that wants a gradient is its owner's, not kept only for backward), and two ReLU outputs once each.
    assert session.figures.plain_bytes - before == 2 * 8 * 8 * 36 * 4


def test_the_original_is_freed_while_the_copy_waits(running):
    model = network()
    running()
    warm_up(model)
    seen = []
    handle = model[1].register_forward_hook(lambda _m, _a, output: seen.append(StorageWeakRef(output.untyped_storage())))
    output = model(batch())
    gc.collect()
    assert seen[0].expired(), "somebody still holds the storage of the ReLU's output"
    output.sum().backward()
    handle.remove()


@pytest.mark.parametrize("mode", ["None", "Lossless"])
def test_modes_without_loss_are_bit_identical(running, mode):
    model = network()
    plain = gradients(model, batch())
    session = running(mode=mode)
    warm_up(copy.deepcopy(model))
    assert same(gradients(model, batch()), plain)
    assert not any(row.bound for row in session.figures.layers.values())


def wrapped(model: nn.Module) -> nn.Module:
    """As those for several ranks do it."""
    around = nn.Sequential()
    around.module = model
    return around


@pytest.mark.parametrize("around", [lambda model: model, wrapped], ids=["as it is", "wrapped"])
@pytest.mark.parametrize(("overrides", "layers"), [((), {"2", "5"}), ((SiteOverride("2", "None"),), {"5"})])
def test_layers_have_the_user_s_names_and_an_override_takes_one_out(running, overrides, layers, around):
    model, session = around(network()), running(overrides=overrides)
    warm_up(model)
    session.figures.forget()
    gradients(model, batch())
    assert session.figures.layers.keys() == layers


def test_a_parameter_is_known_in_every_guise():
    weight = nn.Parameter(torch.randn(6, 4))
    guises = [weight, weight.t(), weight.chunk(2)[1], weight[1:3], weight.view(-1), weight.bfloat16(), weight.t().bfloat16().t()]
    guises += [weight.diagonal(), weight.unfold(0, 2, 1), weight[None].expand(3, 6, 4), weight.detach().requires_grad_().t()]
    with torch.no_grad():
        guises += [weight.view(4, 6), weight.detach().requires_grad_()[1:]]
    assert all(is_parameter(t) for t in guises)
    assert not any(is_parameter(t) for t in (torch.randn(3), weight * 1, (weight @ weight.t()).t()))


def test_the_self_check_passes_here_and_sees_a_torch_that_differs(monkeypatch):
    assert self_check() == ""
    monkeypatch.setattr("kompakt_runtime.scope.origin.saved_for", lambda _t: -1)
    assert "saves" in self_check()


class Odd(nn.Module):
    """Feeds a parameter, a buffer and a tied weight into linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.position = nn.Parameter(torch.randn(16, 8))
        self.register_buffer("grid", torch.randn(16, 8))
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.two.weight = self.one.weight

    def forward(self, x):
        rest = self.one(self.one.weight).sum() + 0.1 * self.two(self.position.detach()[1:]).mean() + 0 * x.mean()
        return self.one(self.position) + self.two(self.grid) + rest


def test_parameters_and_buffers_are_never_lossy(running):
    model, session = Odd(), running()
    warm_up(model)
    assert same(*ours_and_plain(model, session))
    assert session.figures.compressed == 0


def in_bfloat16(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(x)


def test_autocast_copies_of_weights_stay_exact_and_of_inputs_are_compressed(running):
    model = Holder(network(), in_bfloat16)
    session = running()
    warm_up(model)
    ours, plain = ours_and_plain(model, session)
    assert torch.equal(ours["input"], plain["input"])
    assert torch.equal(ours["model.0.bias"], plain["model.0.bias"])
    assert not torch.equal(ours["model.2.weight"], plain["model.2.weight"])
    assert session.figures.layers.keys() >= {"model.2", "model.5"}


def test_the_user_s_random_numbers_never_move(running):
    def draws() -> torch.Tensor:
        model = nn.Sequential(network()[:5], nn.Dropout(0.5), nn.Linear(8 * 36, 4))
        torch.manual_seed(3)
        warm_up(model)
        gradients(model, batch())
        return torch.get_rng_state()

    plain = draws()
    running()
    assert torch.equal(draws(), plain)


def test_what_somebody_else_holds_is_no_saving(running):
    def keeping(model, x):
        kept[:] = [model[:2](x)]
        return model[2:](kept[0])

    kept: list[torch.Tensor] = []
    model, session = Holder(network(), keeping), running()
    warm_up(model)
    assert session.figures.held_bytes >= 8 * 8 * 36 * 4
    session.figures.forget()
    gradients(model, batch())
    assert session.figures.held_bytes == 8 * 8 * 36 * 4
    assert "model.2" not in session.figures.layers, "it is not packed in vain again"
    assert session.figures.raw["HeldElsewhere"] == 1


def test_memory_format_survives(running):
    model = network().to(memory_format=torch.channels_last)
    session = running()
    warm_up(model)
    session.figures.forget()
    x = batch().to(memory_format=torch.channels_last)
    assert gradients(model, x)["0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert {name for name, row in session.figures.layers.items() if row.bound} == {"2", "5"}
