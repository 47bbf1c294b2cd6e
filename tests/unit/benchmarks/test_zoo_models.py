"""Every model of the zoo is built, has its depth, and gives a finite loss with a gradient for each weight that is read."""

import pytest
import torch
from torch import nn

from benchmarks.accuracy_tasks import DTYPES
from benchmarks.zoo.models import AIMS, ZOO
from benchmarks.zoo.training import Training
from tests.support.needs import needs

# What libraries warn of when they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("name", ZOO)
def test_a_model_learns_from_its_batch(name):
    needs(ZOO[name].library, "zoo")
    training = Training(ZOO[name], "float32")
    loss = training.loss(training.batch(0))
    loss.backward()
    assert torch.isfinite(loss)
    reached = [weight.grad is not None for weight in training.module.parameters()]
    assert sum(reached) > 0.9 * len(reached)


@pytest.mark.parametrize("name", ZOO)
def test_a_model_is_as_deep_as_people_s(name):
    needs(ZOO[name].library, "zoo")
    module = Training(ZOO[name], "float32").module
    convolutions = sum(isinstance(layer, nn.Conv2d) for layer in module.modules())
    stages = [len(layer) for layer in module.modules() if isinstance(layer, nn.ModuleList | nn.Sequential)]
    longest = max(stages, default=0)
    blocks = longest if "T5" not in name else 2 * longest
    assert convolutions >= 50 or blocks >= 12 or name.startswith("convnext"), "its 18 blocks stand in four stages"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_has_an_aim_for_every_family(dtype):
    assert {model.family for model in ZOO.values()} <= AIMS[dtype].keys()
