"""When it becomes known what a saved tensor is read for, and what is known then."""

import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kompakt_runtime.compat import graph
from kompakt_runtime.uses.reads import Read
from kompakt_runtime.uses.walk import Walk
from tests.support.runtime.recorder import Recorder


@pytest.fixture(params=["told", "asked"], autouse=True)
def way(request, monkeypatch):
    """The second is that of torch before SavedTensor.data."""
    if request.param == "asked":
        monkeypatch.setattr(graph, "SLOTS_TOLD", False)
    elif not graph.SLOTS_TOLD:
        pytest.skip(f"torch {torch.__version__} does not tell")


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


class Node:
    """As autograd's, as far as a walk looks."""

    def __init__(self, number: int, *behind: "Node") -> None:
        self.number, self.next_functions = number, tuple((node, 0) for node in behind)

    def _sequence_nr(self) -> int:
        return self.number


def test_every_node_is_visited_once_and_old_ones_never():
    old = Node(1)
    first = Node(3, old)
    second = Node(5, first, first)
    walk = Walk()
    assert [node.number for node in walk.fresh([second], 2, 6)] == [5, 3]
    assert [node.number for node in walk.fresh([Node(7, second)], 2, 8)] == [7]


def test_a_node_that_still_saves_is_passed_and_visited_later():
    unfinished = Node(5, Node(3))
    walk = Walk()
    assert [node.number for node in walk.fresh([unfinished], 0, 5)] == [3]
    assert [node.number for node in walk.fresh([unfinished], 0, 6)] == [5]


def test_a_wide_graph_is_not_walked_along_every_path():
    """Two ways from each of 40 nodes to the next are 2^40 paths."""
    node = Node(0)
    for number in range(1, 41):
        node = Node(number, node, node)
    assert len(list(Walk().fresh([node], 0, 0))) == 0
    assert len(list(Walk().fresh([node], 0, 41))) == 41


def test_what_is_forgotten_takes_no_room():
    walk = Walk()
    list(walk.fresh([Node(9, Node(8, Node(7)))], 0, 10))
    walk.forget(9)
    assert len(walk) == 1


def test_a_product_with_a_parameter_is_a_linear_operand_through_views_and_casts():
    x, weight = leaf(4, 6), leaf(5, 6)
    with Recorder() as seen:
        y = x.double() * 1 @ weight.double().t().view(6, 5)
        seen.end(y)
    assert seen.reads("MmBackward0.self") == [Read.LINEAR]
    assert next(told.parameter for told in seen.told if told.place == "MmBackward0.self") is weight


def test_a_weight_that_is_computed_makes_a_product_operand():
    """The error would enter what computes the weight."""
    x, weight = leaf(4, 6) * 1, leaf(6, 5)
    with Recorder() as seen:
        seen.end(x @ weight.exp())
    assert seen.reads("MmBackward0.self") == [Read.PRODUCT]


def test_slots_are_not_taken_for_each_other():
    """mm saves its second factor first."""
    x, weight = leaf(4, 6) * 1, leaf(6, 5)
    with Recorder() as seen:
        seen.end(x @ weight)
    assert {told.place: told.shape for told in seen.told} == {"MmBackward0.self": (4, 6), "MmBackward0.mat2": (6, 5)}


def test_queries_and_keys_are_product_operands():
    x, w = leaf(2, 4, 8), leaf(8, 8)
    q, k = x @ w, x @ w
    with Recorder() as seen:
        probabilities = (q @ k.mT).softmax(-1)
        seen.end(probabilities @ (x @ w))
    assert seen.reads("BmmBackward0.self")[:1] == [Read.PRODUCT]
    assert seen.reads("BmmBackward0.mat2")[:1] == [Read.PRODUCT]
    assert seen.reads("SoftmaxBackward0.result") == [Read.PROBABILITIES]


def test_the_input_of_a_convolution_by_what_is_trained():
    x = leaf(2, 3, 8, 8) * 1
    for trained, read in ((True, Read.LINEAR), (False, Read.SHAPE)):
        weight = leaf(4, 3, 3, 3).detach().requires_grad_(trained)
        with Recorder() as seen:
            seen.end(F.conv2d(x, weight))
        assert seen.reads("ConvolutionBackward0.input") == [read]


def test_a_batch_norm_in_evaluation_mode_only_scales():
    for trained, read in ((True, Read.LINEAR), (False, Read.SHAPE)):
        norm = nn.BatchNorm2d(3).eval().requires_grad_(trained)
        with Recorder() as seen:
            seen.end(norm(leaf(2, 3, 4, 4) * 1))
        assert seen.reads("NativeBatchNormBackward0.input") == [read]
        with Recorder() as seen:
            seen.end(norm.train()(leaf(2, 3, 4, 4) * 1))
        assert seen.reads("NativeBatchNormBackward0.input") == [Read.NORM]


def block(x: torch.Tensor, w: list[torch.Tensor]) -> torch.Tensor:
    """Without one module: RMS norm written out, attention with rotary embeddings, a gated MLP."""
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w[0]
    q, k, v = (F.linear(h, w[i]) for i in (1, 2, 3))
    q, k = (t * 0.6 + torch.cat((-t[..., 4:], t[..., :4]), -1) * 0.8 for t in (q, k))
    x = x + F.linear((q @ k.mT / 3).softmax(-1) @ v, w[4])
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w[5]
    return x + F.linear(F.silu(F.linear(h, w[6])) * F.linear(h, w[7]), w[8])


WEIGHTS = ((8,), (8, 8), (8, 8), (8, 8), (8, 8), (8,), (16, 8), (16, 8), (8, 16))


def saved_by_a_block() -> int:
    with Recorder() as seen:
        block(leaf(2, 4, 8) * 1, [leaf(*shape) for shape in WEIGHTS])
    return seen.saved


def test_a_functional_forward_pass_never_keeps_three_blocks_waiting():
    x = leaf(2, 4, 8) * 1
    with Recorder() as seen:
        for _ in range(48):
            x = block(x, [leaf(*shape) for shape in WEIGHTS])
        seen.end(x)
    assert seen.waited <= saved_by_a_block()
    assert not seen.left
    assert seen.saved == len(seen.told) == 48 * saved_by_a_block()
    assert all(told.read is not None for told in seen.told)


def test_what_the_functional_block_reads():
    with Recorder() as seen:
        seen.end(block(leaf(2, 4, 8) * 1, [leaf(*shape) for shape in WEIGHTS]))
    assert seen.reads("AddmmBackward0.mat1") == []
    linear = [told.shape for told in seen.told if told.read is Read.LINEAR]
    # Twice what the norm's weight scales; inputs of seven products with weights, of which three and two are one tensor.
    assert len(linear) == 9
    assert Read.ELEMENT in seen.reads("SiluBackward0.self")
    assert set(seen.reads("PowBackward0.self") + seen.reads("RsqrtBackward0.result")) == {Read.ELEMENT}


def test_projections_of_multihead_attention_are_linear():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = leaf(2, 4, 8) * 1
    with Recorder() as seen:
        seen.end(attention(x, x, x, need_weights=False)[0])
    assert seen.reads("AddmmBackward0.mat1") + seen.reads("MmBackward0.self") == [Read.LINEAR] * 2
    assert seen.reads("ScaledDotProductFlashAttentionForCpuBackward0.query") == [Read.JOINT]


def test_an_activation_in_place_saves_a_clone_and_is_found_all_the_same():
    x = leaf(4, 6) * 1
    with Recorder() as seen:
        seen.end(F.silu(x * 2, inplace=True))
    assert seen.reads("SiluBackward0.self") == [Read.ELEMENT]
    assert not seen.left


def test_what_an_operation_in_place_on_a_view_saves_is_let_go_at_once():
    """Its node is inside of another and cannot be asked; nothing may wait for it to the end."""
    x, scale = leaf(4, 6) * 1, leaf(2, 6) * 1
    with Recorder() as seen:
        y = x.clone()
        y[:2].mul_(scale)
        z = y.exp() * 1
        seen.end(z)
    assert seen.reads("torch::autograd::CopySlices") == [None, None]
    assert not seen.left


class Doubled(torch.autograd.Function):
    """Written in Python."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, delta):
        return 2 * delta


def test_what_a_function_of_the_user_saves_has_no_row_but_a_name():
    with Recorder() as seen:
        seen.end(Doubled.apply(leaf(3) * 1) * 1)
    assert [(told.place, told.read) for told in seen.told if "Doubled" in told.place] == [("DoubledBackward.tensors", None)]


def test_a_node_without_a_row_is_named_with_its_slots():
    x = leaf(3) * 1
    with Recorder() as seen:
        seen.end(x.cumprod(0))
    assert {told.place for told in seen.told} == {"CumprodBackward0.self", "CumprodBackward0.result"}
    assert {told.read for told in seen.told} == {None}


def test_branches_that_are_thrown_away_do_not_wait():
    x = leaf(3) * 1
    with Recorder() as seen:
        x.exp()
        assert seen.readers.waiting == 0
        kept = x.exp()
        assert seen.readers.waiting == 1
        seen.end(kept)
    assert len(seen.told) == 1


def test_nothing_is_kept_alive():
    """By what was told or by what waits: with the graph goes what was packed."""
    with Recorder() as seen:
        y = (leaf(3) * 1).exp().sin()
        seen.end(y)
    assert seen.alive() == 2
    gc.disable()  # not even for a moment
    try:
        del y
        assert seen.alive() == 0
    finally:
        gc.enable()


def test_what_no_output_leads_to_is_left_over():
    x = leaf(3) * 1
    with Recorder() as seen:
        kept = x.exp()
        seen.end(x.sin())
    assert seen.left == [(3,)]
    assert kept.grad_fn is not None


def test_threads_wait_for_their_own():
    """Numbers of nodes are each thread's own: replicas of a model would take each other's tensors."""
    with Recorder() as seen:
        kept = (leaf(3) * 1).exp()
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(seen.readers.waiting))
        thread.start()
        thread.join()
        assert elsewhere == [0]
        assert seen.readers.waiting > 0
        seen.end(kept)


def test_an_inner_module_settles_what_it_saved_and_leaves_the_rest():
    x = leaf(3) * 1
    with Recorder() as seen:
        outside = x.exp()
        seen.readers.returned({"inner": [x.sin()]}, outermost=False)
        assert seen.reads("SinBackward0.self") == [Read.ELEMENT]
        assert seen.readers.waiting == 1
        seen.end(outside)
    assert not seen.left


def test_an_abandoned_forward_pass_leaves_nothing_behind():
    with Recorder() as seen:
        kept = (leaf(3) * 1).exp()
        seen.readers.abandon()
        assert seen.readers.waiting == 0
    assert seen.left == []
    assert kept.grad_fn is not None
