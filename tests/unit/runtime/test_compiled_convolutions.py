"""Compiled convolutional networks: norms and activations before convolutions are packed, and signs are handed over as bits."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.compiled import rewriting
from kompakt_runtime.compiled.convolutions import split
from kompakt_runtime.compiled.graphs import name_of, outputs
from tests.support.runtime.compiled_models import off, trained
from tests.support.runtime.compiling import compiled as by_backend

compiled = partial(by_backend, decomposed=True)
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
MAP = 4 * 16 * 12 * 12  # numbers of one value between two layers


def layer(given: int, made: int) -> list[nn.Module]:
    return [nn.Conv2d(given, made, 3, padding=1, bias=False), nn.BatchNorm2d(made)]


class Pictures(nn.Module):
    """Blocks as of ResNets, each beside a shortcut."""

    def __init__(self, blocks: int = 2, activation=nn.ReLU) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Sequential(*layer(3, 16), activation()), nn.Linear(16, 8)
        self.blocks = nn.ModuleList(nn.Sequential(*layer(16, 16), activation(), *layer(16, 16)) for _ in range(blocks))

    def forward(self, x):
        h = self.first(x)
        for inner in self.blocks:
            h = F.relu(inner(h) + h)
        return self.last(h.mean((2, 3)))


def pictures(seed: int) -> torch.Tensor:
    return torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def graphs(monkeypatch):
    """Both, as they were and as they are rewritten, with how many results are the user's."""
    found = []

    def watched(forward, backward, results, *others):
        before = sizes(forward.graph, results)
        count = rewriting_of(forward, backward, results, *others)
        found.append((before, forward.graph, backward.graph, results))
        return count

    rewriting_of = rewriting.rewrite
    monkeypatch.setattr(rewriting, "rewrite", watched)
    return found


def sizes(graph, results):
    """By name, of tensors that are handed over."""
    nodes = [one for one in outputs(graph)[results:] if hasattr(one, "op") and isinstance(one.meta.get("val"), torch.Tensor)]
    return {one.name: (one.meta["val"].dtype, one.meta["val"].numel()) for one in nodes if one.op != "placeholder"}


def large(graph, results):
    """What is handed over as it is, of the size of a value between layers."""
    return [name for name, (dtype, count) in sizes(graph, results).items() if count >= MAP // 8 and dtype.is_floating_point]


def packed(graph):
    return [node.args[0].name for node in graph.nodes if node.target in rewriting.PACKS]


CONVOLUTIONS = {
    "plain": (nn.Conv2d, {"kernel_size": 3}, (5, 6, 11, 9)),
    "strides": (nn.Conv2d, {"kernel_size": 3, "stride": (2, 3), "padding": (1, 2)}, (5, 6, 11, 9)),
    "even kernel": (nn.Conv2d, {"kernel_size": 2, "stride": 2}, (5, 6, 11, 8)),
    "dilated": (nn.Conv2d, {"kernel_size": 3, "dilation": 2, "stride": 3}, (5, 6, 12, 12)),
    "groups": (nn.Conv2d, {"kernel_size": 3, "groups": 3, "stride": 2}, (5, 6, 10, 10)),
    "row": (nn.Conv1d, {"kernel_size": 5, "stride": 2}, (5, 6, 12)),
    "volume": (nn.Conv3d, {"kernel_size": 3, "stride": 2, "padding": 1}, (2, 6, 6, 5, 4)),
    "transposed": (nn.ConvTranspose2d, {"kernel_size": 3, "stride": 2, "output_padding": 1, "groups": 2}, (5, 6, 5, 4)),
}


@pytest.mark.parametrize(("kind", "settings", "shape"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_two_operators_make_the_gradients_that_one_made(running, monkeypatch, kind, settings, shape):
    """Nothing is packed here."""
    counts = []
    monkeypatch.setattr(rewriting, "split", lambda graph: counts.append(split(graph)))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), kind(6, 6, **settings)).double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    running(min_tensor_bytes=1 << 30)
    ours, plain = (torch.autograd.grad(one(x).sin().sum(), [x, *model.parameters()]) for one in (compiled(model), model))
    assert set(counts) == {1}
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_what_norms_read_is_packed_and_what_they_give_is_made_again(running, graphs):
    batch = pictures
    plain = trained(Pictures(), batch)
    session = running(min_tensor_bytes=512)
    error = off(trained(compiled(Pictures()), batch), plain)
    before, forward, _, results = graphs[0]
    assert [dtype for dtype, count in before.values() if count == MAP].count(torch.float32) > 4
    assert not large(forward, results)
    assert [name.split("_")[0] for name in packed(forward)].count("convolution") == 5
    assert not [name for name in packed(forward) if name.startswith("relu")], "all are made again"
    assert 0 < error < 0.1
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


def test_signs_are_those_of_the_forward_pass(running, graphs):
    """In the copy numbers near zero have another sign."""
    running(min_tensor_bytes=512)
    trained(compiled(Pictures()), pictures, steps=1)
    _, forward, backward, _ = graphs[0]
    assert not [node for node in backward.nodes if name_of(node) in ("aten.le.Scalar", "aten.threshold_backward.default")]
    masks = [node.name for node in forward.nodes if node.name.startswith("kompakt_relu")]
    handed = {node.name.removesuffix("_bits") for node in backward.nodes if node.op == "placeholder"}
    assert len(masks) == 4, "the last one's are the compiler's own"
    assert set(masks) <= handed


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -0.0])
def test_gradients_go_where_the_relu_lets_them(running, odd):
    """What is no number lets a gradient through, and a gradient that is none stops at zeros, as without us."""

    def passed(model):
        x = torch.linspace(-1, 1, 64).view(4, 16).index_fill(1, torch.tensor([3]), odd).requires_grad_()
        return torch.autograd.grad((model(x) * torch.full((4, 16), odd)).sum(), x)[0]

    relu = nn.ReLU()
    running(min_tensor_bytes=0)
    torch.testing.assert_close(passed(compiled(relu)), passed(relu), rtol=0, atol=0, equal_nan=True)


def test_signs_stay_with_values_where_nothing_is_won(running, graphs):
    """As before a linear layer: the copy keeps signs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    running(min_tensor_bytes=512)
    trained(by_backend(model), steps=2)
    _, forward, backward, results = graphs[0]
    assert len(packed(forward)) == 2
    assert not [one for one in sizes(forward, results).values() if one[0] in (torch.bool, torch.uint8)]
    assert [node for node in backward.nodes if name_of(node) == "aten.threshold_backward.default"]


def test_a_value_that_too_many_operators_would_make_is_kept_and_its_signs_beside_it(running, graphs):
    """Each block adds to what the one before gave. So norms before it are packed in any case."""
    running(min_tensor_bytes=512)
    trained(compiled(Pictures(12)), pictures, steps=3)
    _, forward, _, results = graphs[0]
    relus = [name for name in packed(forward) if name.startswith("relu")]
    assert 0 < len(relus) < 12
    assert [name.split("_")[0] for name in packed(forward)].count("convolution") == 25
    assert not large(forward, results)


@pytest.mark.parametrize("activation", [nn.Hardswish, nn.SiLU, partial(nn.LeakyReLU, 0.1)], ids=["hardswish", "silu", "leaky"])
def test_two_parameters_of_a_norm_may_depend_on_one_value(running, graphs, activation):
    """The activation's gradient reads what the norm made, so errors reach the norm's bias too."""
    plain = trained(Pictures(activation=activation), pictures)
    session = running(min_tensor_bytes=512)
    code = compiled(Pictures(activation=activation))
    error = off(trained(code, pictures), plain)
    norms = [one for one in session.hooks.operations if one.name.endswith("[norm]")]
    assert {len(one.weights) for one in norms} == {1, 2}, "those before a sum have no activation"
    assert all(one.bound is not None for one in norms)
    assert not large(graphs[0][1], graphs[0][3])
    assert 0 < error < 0.1


def test_batches_of_other_sizes(running, graphs):
    """A norm divides by a number that is made of the batch's size."""
    plain, model = Pictures(), Pictures()
    session = running(min_tensor_bytes=512)
    code = compiled(model)
    for count in (4, 3, 2):
        for one in (code, plain):
            one.zero_grad()
            one(pictures(0)[:count]).square().mean().backward()
        assert off(*({name: weight.grad for name, weight in one.named_parameters()} for one in (model, plain))) < 0.1
    assert len(graphs) == 2, "the second is for all sizes"
    for _, forward, _, results in graphs:
        assert [name.split("_")[0] for name in packed(forward)].count("convolution") == 5
        assert not large(forward, results)
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_by_the_compilers_own_code(running, layout):
    """Inductor lays tensors out as it likes."""
    torch._dynamo.reset()

    def batch(seed: int) -> torch.Tensor:
        return pictures(seed).to(memory_format=layout)

    plain = trained(Pictures(1).to(memory_format=layout), batch)
    session, model = running(min_tensor_bytes=512), Pictures(1).to(memory_format=layout)
    error = off(trained(torch.compile(model), batch), plain)
    assert len([one for one in session.hooks.operations if one.bound is not None and one.name.endswith("[norm]")]) == 3
    assert not [reason for reason in session.figures.raw if "Failed" in reason]
    assert 0 < error < 0.1
