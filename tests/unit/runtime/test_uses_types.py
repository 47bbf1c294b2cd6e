"""A process that tries a row must see what is read in the types that GPUs train in, where last bits are large."""

import pytest
import torch

from kompakt_runtime.compat import graph
from kompakt_runtime.uses.reads import Read
from kompakt_runtime.uses.response import agrees
from kompakt_runtime.uses.table import ROWS
from kompakt_runtime.uses.trials import looked_at
from tests.support.runtime import operations
from tests.support.runtime.operations import OPERATIONS, Operation, node_of
from tests.support.runtime.recorder import Recorder

# Each reads less than what follows it.
LESS = (Read.SHAPE, Read.SIGN, Read.RANGE, Read.PRODUCT, Read.ELEMENT, Read.JOINT)
SAME = {Read.NORM: Read.JOINT, Read.PROBABILITIES: Read.JOINT}
# What is read on a CPU where that is less than the row says.
SEEN = {"AbsBackward0": Read.SIGN, "LogSoftmaxBackward0": Read.ELEMENT}
# Nothing is packed because of a range, and a few last bits of bfloat16 may lie on both sides of a threshold.
LEFT = (Read.INDEX, Read.MASK, Read.RANGE)
# Made in bfloat16 alone, which the derivation of rows looks at.
FIXED = {"GroupedMmBackward0"}
FLOATING = [
    (operation, slot)
    for operation in OPERATIONS
    for slot in operation.slots
    if ROWS[operation.node][slot].read not in LEFT and operation.node not in FIXED
]


def too_little(operation: Operation, slot: str) -> tuple[Read, ...]:
    """Claims by which gradients would be spoiled."""
    read = ROWS[operation.node][slot].read
    read = SEEN.get(operation.node) or min((*operation.sees, SAME.get(read, read)), key=LESS.index)
    return LESS[: LESS.index(read)]


def lacking(operation: Operation) -> str:
    """Why there is nothing to look at in this type; "" if there is."""
    try:
        output = operation.made()
        output.backward(torch.ones_like(output))
        node = node_of(output, operation.node)
    except (AttributeError, NotImplementedError, RuntimeError) as problem:
        return str(problem)
    return "made of other nodes" if node is None else "" if graph.first_result(node) else "this torch tells no shapes"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("operation", "slot"), FLOATING, ids=lambda value: getattr(value, "label", value))
def test_rows_hold_and_claims_of_less_do_not(monkeypatch, operation, slot, dtype):
    exact = operations.x
    monkeypatch.setattr(operations, "x", lambda *shape, grad=True: exact(*shape, grad=False).to(dtype).requires_grad_(grad))
    if missing := lacking(operation):
        pytest.skip(missing)
    row = ROWS[operation.node][slot]
    with Recorder() as recorder:
        node = node_of(operation.made(), operation.node)
    boxes = graph.held(node, slot)
    assert boxes
    for box in boxes:
        seen = looked_at(node, graph.first_result(node), box, box.t, recorder.substitutes)
        assert agrees(row.read, row.gradients, seen)
        assert [claim for claim in too_little(operation, slot) if agrees(claim, row.gradients, seen)] == []
