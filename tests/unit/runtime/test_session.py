"""Training with compression on: what it may change, what it must not, and where it must step aside."""

import concurrent.futures
import copy
import gc
import os
from collections.abc import Callable

import pytest

if "torch" not in os.environ.get("KOMPAKT_REQUIRE", ""):
    pytest.importorskip("torch", reason="torch is not installed: `make sync-torch`")

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

from kompakt_runtime import ledger
from kompakt_runtime.config import Config, Override
from kompakt_runtime.origin import is_parameter, self_check
from kompakt_runtime.session import Session

INPUT = (8, 3, 6, 6)
# The first optimizer of a process loads the compiler, which takes seconds; no test should pay for it.
torch.optim.SGD([torch.zeros(1)])


@pytest.fixture
def running():
    """Starts sessions and stops them again."""
    started = []

    def start(**settings) -> Session:
        session = Session(Config(**{"mode": "ErrorBounded", "min_tensor_bytes": 0, **settings}))
        session.start()
        started.append(session)
        return session

    yield start
    for session in started:
        session.stop()
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None, "hooks left behind"


def network(inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(inplace),
        nn.Flatten(),
        nn.Linear(8 * 36, 4),
    )


def batch(seed: int = 1) -> torch.Tensor:
    return torch.randn(INPUT, generator=torch.Generator().manual_seed(seed))


def warm_up(model: nn.Module, steps: int = 3, scale: float = 1.0, optimizer_class=torch.optim.SGD, **options) -> None:
    """Enough optimizer steps for the first bounds."""
    optimizer = optimizer_class(model.parameters(), lr=1e-3, **options)
    for step in range(steps):
        optimizer.zero_grad()
        (model(batch(step)).square().sum() * scale).backward()
        if scale != 1:
            for weight in model.parameters():
                weight.grad /= scale
        optimizer.step()
    optimizer.zero_grad()


def gradients(model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    x = x.detach().requires_grad_()
    model(x).square().sum().backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    return {**found, "input": x.grad}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_only_weight_gradients_move_and_only_a_little(running):
    model = network()
    session = running()
    warm_up(model)
    ours = gradients(model, batch())
    session.stop()
    plain = gradients(model, batch())
    weights = {"2.weight", "5.weight"}
    for name in plain.keys() - weights:
        assert torch.equal(ours[name], plain[name]), f"{name} must not change by a bit"
    for name in weights:
        error = (ours[name] - plain[name]).abs().mean() / plain[name].abs().mean()
        assert 0 < error < 0.1, f"{name}: {error}"
    assert session.figures.compressed == 2
    assert session.figures.violations == 0


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


def test_an_override_takes_a_layer_out(running):
    model = network()
    session = running(overrides=(Override("2", "None"),))
    warm_up(model)
    gradients(model, batch())
    assert set(session.figures.layers) == {"5"}


def test_small_tensors_are_left_alone_and_counted(running):
    model, session = network(), running(min_tensor_bytes=1 << 20)
    warm_up(model)
    gradients(model, batch())
    assert session.figures.compressed == 0
    assert session.figures.raw["Small"] > 0


MISUSES: dict[str, Callable[[nn.Sequential, torch.Tensor], torch.Tensor]] = {}


def misuse(function):
    MISUSES[function.__name__] = function
    return function


@misuse
def change_a_compressed_tensor(model, x):
    hidden = model[:2](x)
    out = model[2](hidden)
    hidden.mul_(2)
    return out


@misuse
def change_it_through_a_view(model, x):
    hidden = model[:2](x)
    out = model[2](hidden)
    hidden.view(-1)[0] = 5
    return out


@misuse
def change_it_through_a_detached_alias(model, x):
    hidden = model[:2](x)
    alias = hidden.detach()
    out = model[2](hidden)
    del hidden
    alias.add_(1)
    return out


@misuse
def change_a_tensor_kept_as_it_is(model, x):
    hidden = model[0](x).sigmoid()
    out = hidden * hidden
    hidden.mul_(2)
    return out


@misuse
def change_a_weight(model, x):
    out = model(x.requires_grad_())
    with torch.no_grad():
        model[5].weight.mul_(2)
    return out


class Holder(nn.Module):
    """Runs a function as the outermost module."""

    def __init__(self, model: nn.Module, function: Callable) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, x):
        return self.function(self.model, x)


@pytest.mark.parametrize("name", MISUSES)
@pytest.mark.parametrize("on", [False, True])
def test_in_place_misuse_raises_as_in_plain_training(running, name, on):
    model = network()
    if on:
        running()
    warm_up(model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Holder(model, MISUSES[name])(batch()).sum().backward()


def test_in_place_relus_are_no_misuse(running):
    model, session = network(inplace=True), running()
    warm_up(model)
    ours = gradients(model, batch())
    session.stop()
    assert torch.equal(ours["0.weight"], gradients(model, batch())["0.weight"])
    assert session.figures.compressed == 2


def test_a_later_operation_that_reads_the_values_brings_the_original_back(running):
    def both(model, x):
        hidden = model[:2](x)
        return model[2](hidden) * hidden

    model = network()
    session = running()
    warm_up(model)
    whole = Holder(model[:5], both)
    ours = gradients(whole, batch())
    session.stop()
    assert same(ours, gradients(whole, batch()))


def test_a_parameter_is_known_in_every_guise():
    weight = nn.Parameter(torch.randn(6, 4))
    guises = [
        weight,
        weight.t(),
        weight.chunk(2)[1],
        weight[1:3],
        weight.view(-1),
        weight.to(torch.bfloat16),
        weight.t().bfloat16().t(),
    ]
    guises += [weight[None].expand(3, 6, 4), weight.detach().requires_grad_().t()]
    assert all(is_parameter(t) for t in guises)
    assert not any(is_parameter(t) for t in (torch.randn(3), weight * 1, (weight @ weight.t()).t()))


def test_the_self_check_passes_here_and_sees_a_torch_that_differs(monkeypatch):
    assert self_check() == ""
    monkeypatch.setattr("kompakt_runtime.origin.is_own_relu_save", lambda _t: True)
    assert "ReLU" in self_check()


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
        return self.one(self.position) + self.two(self.grid) + self.one(self.one.weight).sum() + 0 * x.mean()


def test_parameters_and_buffers_are_never_lossy(running):
    model, session = Odd(), running()
    warm_up(model)
    ours = gradients(model, batch())
    session.stop()
    assert same(ours, gradients(model, batch()))
    assert session.figures.compressed == 0


def in_bfloat16(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(x)


def test_autocast_copies_of_weights_stay_exact_and_of_inputs_are_compressed(running):
    model = Holder(network(), in_bfloat16)
    session = running()
    warm_up(model)
    ours = gradients(model, batch())
    session.stop()
    plain = gradients(model, batch())
    assert torch.equal(ours["input"], plain["input"])
    assert torch.equal(ours["model.0.bias"], plain["model.0.bias"])
    assert not torch.equal(ours["model.2.weight"], plain["model.2.weight"])
    assert session.figures.layers.keys() >= {"model.2", "model.5"}


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
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    warm_up(model)
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


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_regions_train_as_without_us(running, reentrant):
    def halves(model, x):
        return model[3:](checkpoint(model[:3], x.requires_grad_(), use_reentrant=reentrant))

    model = network()
    plain = gradients(Holder(model, halves), batch())
    running()
    ours = gradients(Holder(model, halves), batch())
    assert same(ours, plain), "nothing is compressed before the first bounds, so all must be equal"
    warm_up(Holder(model, halves))
    error = gradients(Holder(model, halves), batch())["model.5.weight"] - plain["model.5.weight"]
    assert error.abs().max() < 1e9  # runs to the end


def test_unpacking_again_gives_the_same(running):
    model = network()
    running()
    warm_up(model)
    loss = model(batch()).square().sum()
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_double_backward_works(running):
    model = network()
    running()
    warm_up(model)
    x = batch().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_functional_transforms_run_inside_a_module(running):
    def inside(model, x):
        slope = torch.func.grad(lambda scale: (scale * x).square().sum())(torch.ones(()))
        return model(x) * slope.detach()

    model = network()
    plain = gradients(Holder(model, inside), batch())
    session = running()
    assert same(gradients(Holder(model, inside), batch()), plain)
    assert session.figures.plain_bytes > 0, "ours were active around the transform"


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


def test_a_failing_codec_leaves_plain_training(running, monkeypatch):
    model, session = network(), running()
    warm_up(model)

    def broken(_x, _bound):
        raise MemoryError("no room")

    monkeypatch.setattr(ledger, "encode", broken)
    ours = gradients(model, batch())
    session.stop()
    assert same(ours, gradients(model, batch()))
    assert session.figures.raw["EncodeFailedMemoryError"] == 2


def test_a_failing_hook_leaves_plain_training(running, monkeypatch):
    model, session = network(), running()
    plain = gradients(model, batch())
    monkeypatch.setattr("kompakt_runtime.hooks.is_parameter", lambda _t: 1 / 0)
    assert same(gradients(model, batch()), plain)
    assert session.figures.raw["PackFailedZeroDivisionError"] > 0


def bounds_after(running, **options) -> dict[str, float]:
    session = running()
    warm_up(network(), **options)
    session.stop()
    return {site.name: site.bound for site in session.sites._sites.values()}


def test_the_bound_does_not_move_with_the_loss_scale(running):
    plain = bounds_after(running, momentum=0.9)
    assert bounds_after(running, momentum=0.9, scale=1024.0) == pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_other_optimizers_give_bounds_too(running, optimizer):
    assert all(0 < bound < 1 for bound in bounds_after(running, optimizer_class=optimizer).values())


def test_micro_batches_equal_one_big_batch(running):
    def bound(parts: int) -> float:
        model, session = network(), running()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for _ in range(3):
            optimizer.zero_grad()
            for part in batch().chunk(parts):
                model(part).square().sum().backward()
            optimizer.step()
        session.stop()
        return session.sites.of(model[2]).bound

    assert bound(4) == pytest.approx(bound(1), rel=1e-4)


def test_a_step_with_infinite_gradients_is_measured_again(running):
    model, session = network(), running()
    warm_up(model, steps=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    (model(batch()).sum() * torch.inf).backward()
    for weight in model.parameters():
        weight.grad.zero_()
    optimizer.step()
    assert session.sites.of(model[2]).bound is None
    assert session.sites.of(model[2]).observing
    optimizer.zero_grad()
    model(batch()).square().sum().backward()
    optimizer.step()
    assert session.sites.of(model[2]).bound > 0


def test_what_somebody_else_holds_is_no_saving(running):
    class Keeper(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.kept = network(), None

        def forward(self, x):
            self.kept = self.model[:2](x)
            return self.model[2:](self.kept)

    model, session = Keeper(), running()
    warm_up(model)
    before = session.figures.held_bytes
    gradients(model, batch())
    assert session.figures.held_bytes - before == 8 * 8 * 36 * 4
    compressed = session.figures.layers["model.2"].saved
    gradients(model, batch())
    assert session.figures.layers["model.2"].saved == compressed, "it is not packed in vain again"
    assert session.figures.raw["HeldElsewhere"] == 1


def test_memory_format_survives(running):
    model = network().to(memory_format=torch.channels_last)
    session = running()
    warm_up(model)
    x = batch().to(memory_format=torch.channels_last)
    assert gradients(model, x)["0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert {name for name, row in session.figures.layers.items() if row.bound} == {"2", "5"}


def test_wrappers_and_parts_keep_the_user_s_names(running):
    model, session = nn.Sequential(), running()
    model.module = network()
    warm_up(model)
    gradients(model, batch())
    assert session.figures.layers.keys() == {"2", "5"}


def test_weights_made_on_each_pass_are_left_alone(running):
    model = network()
    nn.utils.parametrizations.weight_norm(model[2])
    session = running()
    warm_up(model)
    gradients(model, batch())
    assert session.figures.layers.keys() == {"5"}


@pytest.mark.parametrize("kernel", [1, 3])
def test_the_error_model_predicts_the_measured_gradient_error(kernel):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 8, 12, 12, generator=generator).relu()
    delta = torch.randn(16, 24, 12, 12, generator=generator)
    bound = 0.05
    moved = ledger.decode(ledger.encode(x, bound)) - x
    weight = torch.nn.grad.conv2d_weight(moved, (24, 8, kernel, kernel), delta, padding=kernel // 2)
    per_channel = float(delta.square().sum() / 24)
    predicted = bound / 3**0.5 * (float((x != 0).float().mean()) * per_channel) ** 0.5
    assert 0.8 <= float(weight.square().mean().sqrt()) / predicted <= 1.1


# The compiler itself looks at .grad of a tensor that enters a compiled module in the middle of a model.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("nested", [False, True])
def test_compiled_regions_pass_through(running, nested):
    plain_model = network() if not nested else nn.Sequential(network()[:3], network()[3:])
    model = copy.deepcopy(plain_model)
    session = running()
    if nested:
        model[1] = torch.compile(model[1], backend="aot_eager")
    else:
        model = torch.compile(model, backend="aot_eager")
    ours = gradients(model, batch())
    session.stop()
    wanted = gradients(plain_model, batch())
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours.values(), wanted.values(), strict=True))
    assert session.figures.raw["Compiled"] == 1
    assert not any(reason.endswith("Failed") for reason in session.figures.raw)


def test_threads_do_not_disturb_one_another(running):
    session = running()
    models = [network() for _ in range(2)]
    for model in models:
        warm_up(model)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda model: gradients(model, batch()), models))
    assert same(*found)
    assert session.figures.compressed == 4
