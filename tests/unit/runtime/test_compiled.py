"""What torch.compile made is passed through whole and counted, however it was asked for; the rest of the model is compressed."""

import pytest
import torch
from torch import nn

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from tests.support.runtime.small_training import batch, gradients, warm_up

# The compiler itself looks at .grad of a tensor that enters a compiled region in the middle of a model.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Model(nn.Module):
    """An eager convolution, a region with a dropout that may be compiled, an eager linear layer."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.region = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.5))
        self.last = nn.Linear(8 * 36, 4)
        if how == "child.compile()":
            self.region.compile(backend="aot_eager")
        self.call = torch.compile(self.region.forward, backend="aot_eager") if how == "function" else self.region

    def forward(self, x):
        return self.last(self.call(self.first(x)).flatten(1))


def trained(model: nn.Module, steps: int = 4) -> dict[str, torch.Tensor]:
    warm_up(model, steps)
    torch.manual_seed(3)
    return gradients(model, batch())


@pytest.mark.parametrize("how", ["child.compile()", "function"])
def test_a_region_is_passed_through_and_the_rest_compressed(running, how):
    session = running(mode="Lossless")
    ours = trained(Model(how))
    assert session.figures.raw["Compiled"] > 0
    assert not session.figures.layers, "the region's dropout mask was packed"
    session.stop()
    plain = trained(Model(how))
    assert all(torch.equal(ours[name], plain[name]) for name in plain)
    lossy = running()
    trained(Model(how))
    assert lossy.figures.layers.keys() == {"first", "last"}


def test_a_whole_model_that_compiles_itself_is_counted_and_reported(running):
    session, model = running(), Model("")
    model.compile(backend="aot_eager")
    trained(model)
    assert (session.figures.forwards, session.figures.compressed) == (0, 0)
    assert session.figures.raw == {"Compiled": 1}
    words = export.merged(RuntimeConfig("ErrorBounded"), [export.report(session.figures)])
    assert (words["active"], words["reason"]) == (False, "Compiled")


def test_a_new_bound_makes_no_new_code(running):
    counters = torch._dynamo.utils.counters
    counters.clear()
    session = running()
    trained(Model("child.compile()"), steps=9)
    assert session.figures.layers["last"].bound is not None
    assert counters["frames"]["ok"] == counters["frames"]["total"] == counters["stats"]["unique_graphs"] == 1
