"""What the zoo's paired trainings are given: planted channels, the runtime as it comes, models of others."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks.accuracy import run
from benchmarks.accuracy_codecs import AS_IT_COMES, CODECS, usual
from benchmarks.accuracy_tasks import TASKS as OWN
from benchmarks.accuracy_tasks import Data
from benchmarks.zoo.accuracy import CHANNELS, FACTOR, TASKS, llama
from benchmarks.zoo.outliers import plant, plant_in_llama
from kompakt_runtime.config import DEFAULT_MIN_TENSOR_BYTES
from tests.support.needs import needs

CHOSEN, WIDTH = [3, 5], 16

# What libraries warn of when they are imported is theirs.
others = pytest.mark.filterwarnings("default")


def test_planted_channels_are_larger_and_change_nothing():
    torch.manual_seed(0)
    norm, readers, x = nn.LayerNorm(WIDTH), [nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 8)], torch.randn(32, WIDTH)
    before, outputs = norm(x), [reader(norm(x)) for reader in readers]
    plant(norm, readers, CHOSEN, 100.0)
    after = norm(x)
    assert torch.equal(after[:, CHOSEN], before[:, CHOSEN] * 100)
    assert torch.equal(after[:, :3], before[:, :3])
    for reader, output in zip(readers, outputs, strict=True):
        torch.testing.assert_close(reader(after), output, atol=1e-4, rtol=1e-4)


def test_all_readers_of_both_norms_of_a_block_are_planted():
    torch.manual_seed(0)
    attention = {name: nn.Linear(WIDTH, WIDTH) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    mlp = {name: nn.Linear(WIDTH, WIDTH) for name in ("gate_proj", "up_proj", "down_proj")}
    block = SimpleNamespace(
        self_attn=SimpleNamespace(**attention), mlp=SimpleNamespace(**mlp),
        input_layernorm=nn.LayerNorm(WIDTH), post_attention_layernorm=nn.LayerNorm(WIDTH),
    )  # fmt: skip
    linear = attention | mlp
    before = {name: layer.weight.detach().clone() for name, layer in linear.items()}
    plant_in_llama(SimpleNamespace(model=SimpleNamespace(layers=[block])), CHOSEN, 100.0)
    moved = {name for name, layer in linear.items() if not torch.equal(layer.weight, before[name])}
    assert moved == linear.keys() - {"o_proj", "down_proj"}, "these read no norm"
    assert block.input_layernorm.weight[3] == block.post_attention_layernorm.weight[5] == 100


def test_the_runtime_is_as_it_comes():
    for codec in AS_IT_COMES:
        with CODECS[codec]() as session:
            assert (session.config.mode, session.config.target) == ("ErrorBounded", "0.01")
            assert session.config.min_tensor_bytes == DEFAULT_MIN_TENSOR_BYTES
    assert not set(AS_IT_COMES) & {codec for task in OWN for codec in usual(task)}, "other benchmarks have their own"


@others
def test_the_transformer_has_thirty_million_weights_and_large_channels():
    needs("transformers", "zoo")
    torch.manual_seed(0)
    model = llama()
    assert sum(weight.numel() for weight in model.parameters()) > 30e6
    seen = []
    model.model.model.layers[0].mlp.up_proj.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].detach()))
    assert model(torch.arange(64).reshape(2, 32)).shape == (2, 32, 256)
    sizes = seen[0].abs().mean((0, 1))
    planted = sizes[list(CHANNELS)].mean()
    assert planted > FACTOR / 2 * sizes.median()


@others
@pytest.mark.parametrize("name", ["cnn", "vit"])
def test_a_pair_of_trainings_is_compressed_and_alike(name):
    needs("timm", "zoo")
    task = TASKS[name]
    data = task.data()
    few = Data(*((inputs[:128], labels[:128]) for inputs, labels in (data.train, data.test)))
    plain, ours = run("plain", task, few, 1, 1), run("as it comes", task, few, 1, 1)
    assert ours.plain > ours.saved > 0
    assert ours.loss == pytest.approx(plain.loss, rel=0.05)
