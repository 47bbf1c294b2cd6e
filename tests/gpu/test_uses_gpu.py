"""Rows of nodes that only GPUs make, derived on a real one: what is read in each slot is what the table says."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kompakt_runtime.compat import graph
from kompakt_runtime.uses.reads import Read
from kompakt_runtime.uses.response import agrees
from kompakt_runtime.uses.table import ROWS
from kompakt_runtime.uses.trials import looked_at
from tests.support.runtime.operations import node_of
from tests.support.runtime.recorder import Recorder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

ATTENTION = {
    "ScaledDotProductFlashAttentionBackward0": SDPBackend.FLASH_ATTENTION,
    "ScaledDotProductEfficientAttentionBackward0": SDPBackend.EFFICIENT_ATTENTION,
    "ScaledDotProductCudnnAttentionBackward0": SDPBackend.CUDNN_ATTENTION,
}
OPERANDS = ("query", "key", "value", "output")


def drawn(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    draw = torch.Generator("cuda").manual_seed(seed)
    return torch.empty(shape, device="cuda", dtype=dtype).normal_(generator=draw).requires_grad_()


def attention(backend: SDPBackend, dtype: torch.dtype, causal: bool, groups: int) -> torch.Tensor:
    query = drawn(2, 8, 256, 64, dtype=dtype, seed=1)
    key, value = (drawn(2, 8 // groups, 256, 64, dtype=dtype, seed=seed) for seed in (2, 3))
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=groups > 1)


def batch_norm(dtype: torch.dtype) -> torch.Tensor:
    channels = torch.ones(32, device="cuda", requires_grad=True)
    return F.batch_norm(drawn(8, 32, 16, 16, dtype=dtype, seed=4), None, None, channels, channels * 0, training=True)


def disagreeing(name: str, made: Callable[[], Any], slots: tuple[str, ...]) -> list[str]:
    """Slots that are read otherwise than the table says."""
    with Recorder() as recorder:
        node = node_of(made(), name)
    if node is None:
        pytest.skip("this torch makes another node of it")
    found = []
    for slot in slots:
        row = ROWS[name][slot]
        for box in graph.held(node, slot):
            seen = looked_at(node, graph.first_result(node), box, box.t, recorder.substitutes)
            if row.read is Read.EXACT or not agrees(row.read, row.gradients, seen):
                found.append(f"{slot}, {tuple(box.t.shape)} {box.t.dtype}: {row.read} of {row.gradients}, seen {seen}")
    return found


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name, dtype, causal, groups):
    try:
        assert disagreeing(name, lambda: attention(ATTENTION[name], dtype, causal, groups), OPERANDS) == []
    except RuntimeError as problem:
        pytest.skip(str(problem).splitlines()[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_batch_norm(dtype):
    assert disagreeing("CudnnBatchNormBackward0", lambda: batch_norm(dtype), ("input", "weight")) == []
