"""Compression as a library: a context around forward passes, parts kept out, a report."""

import concurrent.futures
import os

import pytest
import torch
from torch import nn

import kompakt_runtime
from kompakt_runtime.compat.hooks import innermost
from kompakt_runtime.config import ConfigError
from tests.support.runtime.small_training import batch, network


@pytest.fixture
def compress():
    """A context of its own; equal settings of other tests do not meet."""
    made = []

    def make(**settings) -> kompakt_runtime.Compression:
        made.append(kompakt_runtime.Compression(kompakt_runtime.compression(min_tensor_bytes=0, **settings)._session.config))
        return made[-1]

    yield make
    for compression in made:
        compression.close()
    kompakt_runtime.library._by_settings.clear()


def train(model: nn.Module, around, steps: int = 5) -> torch.Tensor:
    """The last loss; only forward passes run inside `around()`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        x = batch(step)  # held here, so no layer packs it
        with around():
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    return loss.detach()


def test_what_was_measured_goes_on_from_step_to_step(compress):
    compression = compress()
    train(network(), lambda: compression)
    report = compression.report()
    assert (report.forwards, report.steps, report.violations) == (5, 5, 0)
    assert [layer.name for layer in report.layers] == ["2", "5"]
    assert all(layer.ratio > 2 and 0 < layer.error <= layer.bound * 1.000001 for layer in report.layers)
    assert report.encoder == "torch"
    assert "2" in str(report)
    assert "times smaller" in str(report)


@pytest.mark.parametrize(("mode", "around"), [("ErrorBounded", lambda _: torch.enable_grad()), ("None", lambda inside: inside)])
def test_outside_and_in_mode_none_nothing_happens(compress, mode, around):
    compression = compress(mode=mode)
    with compression:
        pass
    train(network(), lambda: around(compression))
    assert (compression.report().forwards, compression.report().plain_bytes) == (0, 0)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_ends_a_forward_inside_leaves_nothing_behind(compress, error):
    def stop(*_):
        raise error

    compression, model = compress(), network()
    handle = model[3].register_forward_pre_hook(stop)
    with pytest.raises(error), compression:
        model(batch())
    assert innermost() is None
    handle.remove()
    train(model, lambda: compression)
    assert compression.report().forwards == 6
    assert compression.report().layers


def test_contexts_nest_and_a_report_stays_as_it_is(compress):
    compression, model = compress(), network()
    with compression, compression:
        with compression:
            pass
        model(batch()).sum().backward()
    report = compression.report()
    reasons = dict(report.raw)
    train(model, lambda: torch.enable_grad(), steps=1)
    assert (compression.report().forwards, compression.report().steps) == (1, 1)
    with kompakt_runtime.uncompressed(), compression:
        model(batch()).sum().backward()
    assert compression.report().raw != reasons == report.raw
    compression.close()
    train(model, lambda: torch.enable_grad(), steps=1)
    assert compression.report().steps == 1


def test_equal_settings_give_the_same_object_so_the_call_may_stand_in_the_loop():
    settings = {"mode": "ErrorBounded", "target": 0.02, "min_tensor_bytes": 0}
    train(network(), lambda: kompakt_runtime.compression(**settings))
    compression = kompakt_runtime.compression(**settings)
    assert compression.report().steps == 5
    assert compression.report().layers
    compression.close()
    assert kompakt_runtime.compression(target=0.03) is not compression


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"mode": "Some"}, "mode is 'Some'"),
        ({"target": 0.5}, "target is '0.5'"),
        ({"target": None}, "target is 'None'"),
        ({"overrides": {"head.*": "Off"}}, r"overrides\[0\].mode"),
        ({"overrides": ["head"]}, "overrides must map"),
        ({"min_tensor_bytes": -1}, "min_tensor_bytes is '-1'"),
        ({"activation_gradients": "Some"}, "activation_gradients is 'Some'"),
        ({"nonlinear": "Some"}, "nonlinear is 'Some'"),
        (
            {"nonlinear": "Keep", "activation_gradients": "Bounded"},
            "nonlinear is 'Keep', which now is activation_gradients Exact",
        ),
        *(
            ({"mode": "Lossless", name: "Bounded"}, f"{name} is 'Bounded'; that needs mode ErrorBounded")
            for name in ("activation_gradients", "nonlinear")
        ),
        ({"offload": "Always"}, "offload is 'Always'"),
        ({"mode": "None", "offload": "Auto"}, "offload is 'Auto'; that needs a mode other than None"),
        ({"min_tensor_bytes": 1.5}, "min_tensor_bytes is 1.5"),
    ],
)
def test_a_wrong_argument_is_named(settings, field):
    with pytest.raises(ConfigError, match=field):
        kompakt_runtime.compression(**settings)


@pytest.mark.parametrize(
    ("settings", "bounded"),
    [
        ({}, True),
        ({"activation_gradients": "Exact"}, False),
        ({"nonlinear": "Keep"}, False),
        ({"nonlinear": "Bounded"}, True),
        ({"mode": "Lossless"}, False),
    ],
)
def test_what_a_norm_reads_is_packed_unless_exact_gradients_are_asked_for(compress, settings, bounded):
    compression = compress(**settings)
    torch.manual_seed(0)
    train(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)), lambda: compression)
    assert ("1 [norm]" in {layer.name for layer in compression.report().layers}) is bounded


class Parts(nn.Module):
    """Three linear layers, the second of them kept out in some way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.three = (nn.Linear(32, 32) for _ in range(3))
        self.how = how
        if how == "module":
            kompakt_runtime.exclude(self.two)

    def forward(self, x):
        two = kompakt_runtime.exclude(lambda x: self.two(x)) if self.how == "function" else self.two
        around = kompakt_runtime.uncompressed if self.how == "context" else torch.enable_grad
        x = self.one(x * 1) * 0.5
        with around():
            with around():
                pass
            x = two(x)
        return self.three(x * 0.5)


def layers_of(compression, model, shape=(512, 32)) -> set[str]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        with compression:
            loss = model(torch.randn(shape)).square().mean()
        loss.backward()
        optimizer.step()
    return {layer.name for layer in compression.report().layers}


@pytest.mark.parametrize(
    ("how", "overrides", "packed"),
    [
        ("not at all", {}, {"one", "two", "three"}),
        *((how, {}, {"one", "three"}) for how in ("context", "function", "module")),
        ("by name", {"tw*": "None"}, {"one", "three"}),
        ("by class", {"two": "ErrorBounded", "class:Linear": "None"}, {"two"}),
    ],
)
def test_parts_are_kept_out(compress, how, overrides, packed):
    assert layers_of(compress(overrides=overrides), Parts(how)) == packed


def test_what_ends_a_part_kept_out_lets_the_next_one_in(compress):
    with pytest.raises(KeyError), kompakt_runtime.uncompressed():
        raise KeyError
    assert layers_of(compress(), Parts("")) == {"one", "two", "three"}


def test_a_part_kept_out_on_one_thread_is_none_on_another(compress):
    with concurrent.futures.ThreadPoolExecutor(1) as pool, kompakt_runtime.uncompressed():
        assert pool.submit(layers_of, compress(), Parts("")).result() == {"one", "two", "three"}


def test_what_is_kept_out_keeps_its_name():
    def named() -> str:
        """Its words."""
        return "given"

    kept = kompakt_runtime.exclude(named)
    assert (kept(), kept.__name__, kept.__doc__) == ("given", "named", "Its words.")


def test_a_class_is_kept_out_with_all_below_it(compress):
    @kompakt_runtime.exclude
    class Inner(nn.Sequential):
        pass

    inner = Inner(nn.Linear(32, 32), nn.Dropout(0.0), nn.Linear(32, 32))
    assert layers_of(compress(), nn.Sequential(nn.Linear(32, 32), inner, nn.Linear(32, 32))) == {"0", "2"}


def test_what_waited_in_host_memory_is_told(compress):
    compression = compress(mode="Lossless", offload="Auto")
    train(network(), lambda: compression, steps=1)
    assert set(compression.report().away["reasons"]) == {"NoGpu"}
    away = compression._session.figures.away
    away.left(2_500_000)
    away.late = 1
    words = "waited in host memory: 2.50 MB in 1 tensors, 1 of them fetched only when they were wanted"
    assert words in str(compression.report())


def test_what_cannot_be_kept_out_is_refused():
    for wrong in (3, int):
        with pytest.raises(TypeError, match="exclude takes a function"):
            kompakt_runtime.exclude(wrong)


def test_the_report_as_table_and_picture(compress, tmp_path):
    compression = compress()
    train(torch.nn.Sequential(network(), torch.nn.ReLU()), lambda: compression)
    report = compression.report()
    rich = pytest.importorskip("rich.console")

    def printed(width: int) -> str:
        with open(os.devnull, "w") as nowhere:
            console = rich.Console(width=width, record=True, file=nowhere)
            console.print(report.table())
            return console.export_text()

    shown = printed(160)
    assert f"{report.layers[0].ratio:.2f}" in shown
    assert "largest" in shown
    assert "1 [signs]" in [layer.name for layer in report.layers]
    assert all(f" {layer.name} " in shown for layer in report.layers)
    numbers = {cell for layer in report.layers for cell in layer.cells()[1:]}
    assert numbers <= set(printed(80).split()), "no number is cut off, or broken over two lines"
    pytest.importorskip("matplotlib")
    figure = report.picture()
    figure.canvas.draw()
    title = figure._suptitle.get_window_extent()
    assert all(map(figure.bbox.containsx, (title.x0, title.x1))), "the title is not cut off"
    points = [list(line.get_ydata()) for line in figure.axes[1].lines]
    assert points == 2 * [[layer.name for layer in report.layers if layer.bound]], "no point for what has no bound"
    for name, start in (("ratio.svg", b"<?xml"), ("ratio.png", b"\x89PNG")):
        report.plot(str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(start)


def test_bounds_go_into_a_checkpoint_and_out_of_it(compress):
    model, before = network(), compress()
    train(model, lambda: before)
    state = before.state_dict()
    before.close()
    after = compress()
    after.load_state_dict(state)
    with after:
        model(batch())
    assert {row["name"] for row in state["layers"]} == {"0", "2", "5"}
    assert {site.name: site.bound for site in after._session.sites} == {row["name"]: row["bound"] for row in state["layers"]}
    with pytest.raises(ValueError, match="no error bounds of version 1"):
        after.load_state_dict({})
