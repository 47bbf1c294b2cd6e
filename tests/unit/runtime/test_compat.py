"""What the runtime relies on and torch does not promise: that it is as believed, and asked for in one place."""

import ast
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import kompakt_runtime
from kompakt_runtime.compat import capabilities, graph, tensors

FOLDER = Path(kompakt_runtime.__file__).parent
# Modules that still reach into torch themselves. This list only gets shorter.
NOT_YET = frozenset({
    "bounds/own_weight.py", "bounds/sites.py", "cost/headroom.py", "hooks/forwards.py",
    "scope/calls.py", "scope/obstacles.py", "scope/origin.py",
})  # fmt: skip
TENSORS_OWN = frozenset({
    "_C", "_base", "_buffers", "_cdata", "_call_impl", "_dynamo", "_forward_hooks", "_forward_pre_hooks", "_get_sequence_nr",
    "_modules", "_parameters", "_sequence_nr", "_version",
})  # fmt: skip


@pytest.fixture(params=["told", "asked"])
def way(request, monkeypatch):
    """The second is that of torch before SavedTensor.data."""
    if request.param == "asked":
        monkeypatch.setattr(graph, "SLOTS_TOLD", False)
    elif not graph.SLOTS_TOLD:
        pytest.skip(f"torch {torch.__version__} does not tell")


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), requires_grad=True) * 1


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t, t * t)
        return t**3

    @staticmethod
    def backward(ctx, delta):
        return delta


OPERATIONS = {
    "saves its inputs": lambda t: t @ t,
    "saves its result": torch.sigmoid,
    "saves both": lambda t: t.cumprod(0),
    "in place, by its result": lambda t: t.sigmoid_(),
    "in place, by its input": lambda t: F.silu(t, inplace=True),
    "saves a list": lambda t: t[torch.tensor([0, 1]), torch.tensor([1, 0])],
    "saves statistics": lambda t: F.layer_norm(t, (4,), torch.ones(4, requires_grad=True)),
    "written in Python": Cubed.apply,
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_the_number_of_the_node_that_saves_is_known_while_it_saves(operation):
    numbers = []
    t = x(4, 4)
    with saved_tensors_hooks(lambda saved: numbers.append(graph.saved_for(saved)), lambda packed: packed):
        node = operation(t).grad_fn
    assert numbers
    assert set(numbers) == {graph.number_of(node)}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_all_that_a_node_holds_is_seen(operation):
    packed = []

    def pack(saved):
        packed.append(object())
        return packed[-1]

    t = x(4, 4)
    with saved_tensors_hooks(pack, graph.noting(lambda one: torch.zeros(1))):
        node = operation(t).grad_fn
    seen = [one for slot in graph.slots_of(node) for one in graph.held(node, slot) if one is not None]
    assert {id(one) for one in seen} == {id(one) for one in packed}


@pytest.mark.usefixtures("way")
def test_a_freed_node_holds_nothing():
    y = x(3).exp()
    y.sum().backward()
    assert graph.held(y.grad_fn, "result") == ()
    assert graph.held(y.grad_fn, "no such slot") == ()


def test_accumulators_have_numbers_of_their_own():
    leaf = torch.zeros(1, requires_grad=True)
    accumulator = leaf.exp().grad_fn.next_functions[0][0]
    assert graph.number_of(accumulator) >= 2**63


def test_a_patched_forward_function_is_seen():
    layer = nn.Linear(2, 2)
    assert tensors.untouched(layer)
    layer.forward = lambda t: t
    assert not tensors.untouched(layer)


def test_a_hook_before_a_module_is_seen():
    layer = nn.Linear(2, 2)
    layer.register_forward_pre_hook(lambda module, args: args)
    assert not tensors.untouched(layer)


def test_users_of_a_storage_are_counted():
    t = torch.zeros(4)
    key = tensors.storage_key(t)
    alone = tensors.users_of(key)
    view = t[:2]
    assert tensors.storage_key(view) == key
    assert tensors.users_of(key) > alone


def test_what_is_missing_is_named_with_what_is_done_instead():
    rows = capabilities()
    assert len({row.name for row in rows}) == len(rows) > 5
    assert all(row.instead for row in rows)
    present = {row.name: row.present for row in rows}
    assert present["sequence numbers"]
    assert present["SavedTensor.data"] is graph.SLOTS_TOLD


def reaches_into_torch(source: str) -> bool:
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    return any(name in TENSORS_OWN or name.startswith(("_saved_", "_raw_saved_")) for name in names)


def test_only_one_package_reaches_into_torch():
    """A change in torch is then mended in one place."""
    modules = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.py")}
    others = {name for name, source in modules.items() if reaches_into_torch(source) and not name.startswith("compat/")}
    assert others == NOT_YET
