"""What a saved storage may become: every pair of states, and what a training makes of a transition that is refused."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import nn

from kompakt_runtime.codec import Packed, encode
from kompakt_runtime.saved import states
from kompakt_runtime.saved.carrier import Carrier
from kompakt_runtime.saved.derived import Derived, derivation_of
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.handle import PlainTensor
from kompakt_runtime.saved.lossless import sign_mask
from tests.support.runtime.small_training import failed, ours_and_plain, same, warm_up
from tests.support.runtime.thread_lane import ThreadLane

README = Path(__file__).parents[3] / "runtime/README.md"
BOUND = 0.1
STATES = get_args(states.State)
PAIRS = list(itertools.product(STATES, STATES))


def tensor() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(4096)


def hosted(what: torch.Tensor | Packed) -> Any:
    carrier = Carrier(ThreadLane(), 1 << 20, 1 << 12)
    gone = carrier.out(what)
    assert gone is not None
    carrier.release(0)
    return gone[0]


def derived(t: torch.Tensor) -> Derived:
    x = t.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(PlainTensor, lambda plain: plain.tensor):
        derivation = derivation_of(nn.functional.silu(x), (PlainTensor,), PlainTensor)
    assert derivation is not None
    return Derived(derivation, lambda source: (source.tensor, False))


MAKE: dict[type, Callable[[torch.Tensor], Any]] = {
    states.PlainState: states.PlainState,
    states.PendingState: states.PendingState,
    states.PackedState: lambda t: states.PackedState(encode(t, BOUND), BOUND),
    states.MaskState: lambda t: states.MaskState(sign_mask(t)),
    states.ShapeOnlyState: lambda t: states.ShapeOnlyState(),
    states.DerivedState: lambda t: states.DerivedState(derived(t), BOUND, exact=False),
    states.HostedState: lambda t: states.HostedState(hosted(t)),
    states.PackedHostedState: lambda t: states.PackedHostedState(hosted(encode(t, BOUND)), BOUND),
}


def entry_in(state: type, t: torch.Tensor) -> SavedStorage:
    """By the shortest way that there is."""
    entry, through = SavedStorage(t), {states.PackedHostedState: states.PackedState}
    for each in (through.get(state), state):
        if each is not None:
            entry.become(MAKE[each](t))
    return entry


@pytest.mark.parametrize(("now", "then"), PAIRS, ids=states.name)
def test_a_storage_becomes_what_the_table_says_and_nothing_else(now, then, impossible):
    t = tensor()
    entry = entry_in(now, t)
    before, after = entry.state, MAKE[then](t)
    if (now, then) in states.TRANSITIONS:
        entry.become(after)
        assert entry.state is after
    else:
        with pytest.raises(states.ImpossibleTransition, match=f"that is {states.name(now)} cannot become {states.name(then)}$"):
            entry.become(after)
        assert entry.state is before
        impossible.clear()


@pytest.mark.parametrize("state", STATES, ids=states.name)
def test_a_state_keeps_what_it_says(state):
    t = tensor()
    entry, storage = entry_in(state, t), t.nbytes
    packed = encode(t, BOUND).nbytes
    kept = {
        states.PackedState: packed,
        states.PackedHostedState: packed,
        states.MaskState: storage // 32 + t.element_size(),
        states.ShapeOnlyState: 0,
        states.DerivedState: 0,
    }
    assert entry.kept_bytes == kept.get(state, storage)
    here = state in (states.PlainState, states.PendingState)
    assert (entry.alias is not None) == here
    assert entry.plain == (here or state is states.HostedState)
    assert entry.bounded == (state in (states.PackedState, states.PackedHostedState, states.DerivedState))
    del t
    assert entry.storage.expired() != here, "only what is kept as it is holds the storage"


@pytest.mark.parametrize("state", STATES, ids=states.name)
def test_a_change_in_place_is_seen_whatever_is_kept(state):
    t = tensor()
    entry = entry_in(state, t)
    t.add_(1)
    assert entry.probe._version == entry.version + 1


@pytest.mark.parametrize("state", STATES, ids=states.name)
def test_one_more_operation_has_the_original_again_unless_every_bit_is_kept(state):
    t = tensor()
    entry = entry_in(state, t)
    entry.hold(t)
    if state is states.HostedState:
        assert isinstance(entry.state, states.HostedState)
    else:
        assert isinstance(entry.state, states.PendingState)
        assert torch.equal(entry.alias, t)
        assert (entry.state.aside is not None) == (state is states.PackedState), "a copy may serve again"


@pytest.mark.parametrize("exact", [states.MaskState(sign_mask(tensor()), exact=True), states.DerivedState(None, 0.0, exact=True)])  # type: ignore[arg-type]
def test_what_gives_every_bit_back_is_not_given_up(exact, impossible):
    t = tensor()
    entry = SavedStorage(t)
    entry.become(exact)
    entry.hold(t)
    assert entry.state is exact
    with pytest.raises(states.ImpossibleTransition):
        entry.become(states.PendingState(t))
    impossible.clear()


@pytest.mark.parametrize("packed", [False, True])
def test_what_comes_from_host_memory_is_what_went(packed):
    t = tensor()
    entry = entry_in(states.PackedHostedState if packed else states.HostedState, t)
    gone = entry.state
    assert isinstance(gone, states.HostedState | states.PackedHostedState)
    entry.landed(gone)
    landed = entry.state
    assert isinstance(landed, states.PackedState if packed else states.PlainState)
    assert entry.bound == (BOUND if packed else 0.0)
    entry.landed(gone)
    assert entry.state is landed, "another thread that fetched it too comes too late"


def network() -> nn.Sequential:
    torch.manual_seed(0)
    first = (nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(1), nn.Flatten())
    return nn.Sequential(*first, nn.Linear(72, 32), nn.SiLU(), nn.Linear(32, 4))


@pytest.mark.parametrize(
    ("mode", "then"),
    [
        ("ErrorBounded", states.PackedState),
        *[("Lossless", then) for then in (states.MaskState, states.ShapeOnlyState, states.DerivedState, states.PlainState)],
    ],
)
def test_a_refused_transition_is_counted_and_training_goes_on_plainly(running, monkeypatch, impossible, mode, then):
    """As if somebody had asked for what the table does not have."""
    model, session = network(), running(mode=mode)
    monkeypatch.delitem(states.TRANSITIONS, (states.PendingState, then))
    warm_up(model)
    ours, plain = ours_and_plain(model, session)
    assert same(ours, plain)
    assert any(reason.endswith("ImpossibleTransition") for reason in failed(session))
    assert impossible
    impossible.clear()


def test_the_readme_has_the_whole_table():
    rows = [line.split("|")[1:-1] for line in README.read_text().splitlines() if line.startswith("|")]
    names = {states.name(state) for state in STATES}
    found = {(row[0].strip(), then) for row in rows if row[0].strip() in names for then in row[2].strip().split(", ")}
    assert found == {(states.name(now), states.name(then)) for now, then in states.TRANSITIONS}
