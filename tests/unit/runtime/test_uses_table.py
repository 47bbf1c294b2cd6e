"""Each row of the table, derived from torch itself: something else is put in the slot, and what moves is looked at."""

import re
from pathlib import Path

import pytest
import torch

from kompakt_runtime.compat import graph
from kompakt_runtime.uses.reads import Read
from kompakt_runtime.uses.response import agrees
from kompakt_runtime.uses.table import ROWS
from kompakt_runtime.uses.trials import looked_at
from tests.support.runtime.operations import FIXED, OPERATIONS, Operation, node_of
from tests.support.runtime.recorder import Recorder

# What a row says and what may be seen from outside. Norms and probabilities are names for what is read jointly; logarithms of
# probabilities and absolute values read less.
SEEN = {
    Read.PRODUCT: {Read.PRODUCT},
    Read.ELEMENT: {Read.ELEMENT},
    Read.JOINT: {Read.JOINT},
    Read.NORM: {Read.JOINT},
    Read.PROBABILITIES: {Read.JOINT, Read.ELEMENT},
    Read.SIGN: {Read.SIGN},
    Read.RANGE: {Read.RANGE, Read.SIGN},
    Read.MASK: {Read.MASK},
    Read.INDEX: {Read.INDEX},
    Read.SHAPE: {Read.SHAPE},
}


def reading(t, seen) -> Read:
    """The least that explains what moved."""
    if not seen.at_all:
        return Read.SHAPE
    if not t.is_floating_point():
        return Read.MASK if t.dtype == torch.bool else Read.INDEX
    if not seen.by_size:
        return Read.SIGN
    if not seen.slightly:
        return Read.RANGE
    if not seen.bent:
        return Read.PRODUCT
    return Read.JOINT if seen.spread else Read.ELEMENT


def derived(operation: Operation, slot: str):
    """The slot's tensor, and what was seen in the operation's own backward pass."""
    found = []
    with Recorder() as recorder:
        output = operation.made()
    node = node_of(output, operation.node)

    def look(gradients, deltas):
        for box in graph.held(node, slot):
            found.append((box.t, looked_at(node, deltas, box, box.t, recorder.substitutes)))

    node.register_hook(look)
    output.backward(torch.ones_like(output))
    return found


# Nodes that the newest torch makes on a CPU and an older one does not; in 2.9 the fused norm is still made of other nodes.
LATER = {"FusedRmsNormBackward0", "GroupedMmBackward0", "SafeSoftmaxBackward0"}
LATER_ON_GPUS = {"CudnnAttentionBackward0", "ScaledDotProductFusedAttentionOverrideableBackward0"}


ROWS_MADE = [(operation, slot) for operation in OPERATIONS for slot in operation.slots]


@pytest.mark.parametrize(("operation", "slot"), ROWS_MADE, ids=lambda value: getattr(value, "label", value))
def test_a_row_says_what_the_node_reads(operation, slot):
    if operation.lacks:
        assert operation.node in LATER, operation.lacks
        pytest.skip(operation.lacks)
    row = ROWS[operation.node][slot]
    found = derived(operation, slot)
    assert found, "nothing was saved there"
    for t, seen in found:
        assert seen.at_all == set(row.gradients)
        assert reading(t, seen) in (operation.sees or SEEN[row.read])
        assert agrees(row.read, row.gradients, seen) or operation.sees


@pytest.mark.parametrize(("operation", "slot", "read"), FIXED, ids=lambda value: getattr(value, "label", value))
def test_what_is_read_where_parameters_are_frozen(operation, slot, read):
    found = derived(operation, slot)
    assert [reading(t, seen) for t, seen in found] == [read]


def test_every_row_is_derived_or_marked_unverified():
    claimed = {(node, slot) for node, slots in ROWS.items() for slot, row in slots.items() if row.read is not Read.EXACT}
    unverified = {(node, slot) for node, slot in claimed if ROWS[node][slot].unverified}
    made = {(operation.node, slot) for operation, slot in ROWS_MADE}
    assert made == claimed - unverified


def saved_by_torch() -> dict[str, set[str]]:
    """Names of all nodes of this torch that save tensors, with their slots, from its own header."""
    header = (Path(torch.__file__).parent / "include/torch/csrc/autograd/generated/Functions.h").read_text()
    _, *structs = re.split(r"^struct TORCH_API (?=\w+ )", header, flags=re.M)
    return {struct.split(maxsplit=1)[0]: set(re.findall(r"SavedVariable>? (\w+?)_;", struct)) for struct in structs}


# The random state of flash attention was two tensors up to torch 2.6, and is in one since 2.7; cuDNN's attention had no bias in
# 2.4.
OTHER_VERSIONS = {
    (node, slot)
    for node in ("ScaledDotProductFlashAttentionBackward0", "FlashAttentionBackward0")
    for slot in ("rng_state", "unused", "philox_seed", "philox_offset")
} | {("ScaledDotProductCudnnAttentionBackward0", "attn_bias")}


def test_rows_name_nodes_and_slots_that_torch_has():
    known = saved_by_torch()
    assert len(known) > 500
    wrong = {(node, slot) for node, slots in ROWS.items() for slot in set(slots) - known.get(node, set(slots))}
    assert wrong <= OTHER_VERSIONS


def test_a_node_with_a_row_has_a_row_for_each_slot():
    """What else it saves would count as unknown."""
    known = saved_by_torch()
    missing = {(node, slot) for node, slots in ROWS.items() for slot in known.get(node, set()) - set(slots)}
    assert not missing


def test_rows_of_nodes_that_this_torch_lacks_are_few():
    """A name that is spelled wrong would never be found."""
    lacking = set(ROWS) - set(saved_by_torch())
    assert lacking == (LATER | LATER_ON_GPUS if torch.__version__ < "2.5" else set())


@pytest.mark.parametrize("name", ["sum", "mean", "amax"])
def test_reductions_that_save_nothing_need_no_row(name):
    node = getattr(torch.randn(3, 4, requires_grad=True), name)(0).grad_fn
    assert (graph.slots_of(node) == ()) is (name != "amax")
