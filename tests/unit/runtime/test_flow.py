"""How much of each operation's error arrives at each layer, and what each operation may take of what layers bear."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kompakt_runtime.bounds.allotment import allotted, overs
from kompakt_runtime.bounds.flow import MOST_PASSES, Flow
from kompakt_runtime.bounds.passed_on import PassedOn
from kompakt_runtime.hooks.deriving import Deriving
from kompakt_runtime.saved.noise import Noise
from tests.support.runtime.small_training import batch

WIDTH, BLOCKS = 24, 5


class Block(nn.Module):
    """A small branch beside a large path, as behind the usual initialisation."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + 0.2 * self.down(nn.functional.gelu(self.up(x)))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, WIDTH), *(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 4))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Gradients at the layers' outputs, from always the same batch; weights stay nearly as they are."""
    optimizer.zero_grad()
    found: dict[str, torch.Tensor] = {}
    handles = [
        layer.register_forward_hook(lambda _, __, out, name=name: out.register_hook(lambda g: found.update({name: g})) and None)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    model(batch()).square().sum().backward()
    for handle in handles:
        handle.remove()
    return found


@pytest.fixture(autouse=True)
def nothing_is_computed_again(monkeypatch):
    """What something else is computed from has a tighter bound than its operation is judged with."""
    monkeypatch.setattr(Deriving, "within", lambda *_: False)


def trained(running):
    """A session whose bounds are those of its last measured step, what was seen in it, and the network."""
    session, model = running(activation_gradients="Bounded"), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    flow, seen = session.hooks.operations.flow, []
    arrived = flow.arrived
    flow.arrived = lambda *what: seen.append((what, arrived(*what), [each.used for each in what[0]])) or seen[-1][1]
    for _ in range(5):
        step(model, optimizer)
        optimizer.step()
    (operations, relative), found, used = seen[-1]
    for operation, bound in zip(operations, used, strict=True):
        operation.bound = bound
    for site in session.sites:
        site.mode = "None"  # linear operands stay as they are: only operations bring errors in
    return session, model, optimizer, relative, found


def test_errors_arrive_as_far_as_was_seen(running):
    session, model, optimizer, relative, found = trained(running)
    ours = step(model, optimizer)
    session.stop()
    plain = step(model, optimizer)
    assert len(found) == 2 * BLOCKS + 2
    for site, shares in list(found.items())[2:]:  # behind the last two is no operation
        true = float((ours[site.name] - plain[site.name]).norm() / plain[site.name].norm())
        assert 0.5 < math.sqrt(float(shares.sum())) / true < 2, site.name
    first = min(found, key=lambda site: site.place)
    whole = sum(max(errors) for errors in relative)
    assert float(found[first].sum()) < whole / 9, "the branches are small beside what joins them"


def test_a_layer_feels_nothing_of_what_is_before_it(running):
    *_, found = trained(running)
    for site, shares in found.items():
        if site.name.endswith("down"):
            place = int(site.name.split(".")[0]) - 2
            assert (shares[: place + 1] == 0).all()
            assert (shares[place + 1 :] > 0).all()


def test_each_measured_step_is_seen_whole(running):
    """Also what comes first in it, when the figures of the step before are dropped."""
    session, _model, *_ = trained(running)
    flow = session.hooks.operations.flow
    assert flow.known() == {*session.sites, *session.hooks.operations}


def felt(running, before) -> torch.Tensor:
    """What layers feel of operations in the second step, in the middle of which `before` is called."""
    session, model = running(activation_gradients="Bounded"), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    flow, seen = session.hooks.operations.flow, []
    arrived = flow.arrived
    flow.arrived = lambda *what: seen.append(arrived(*what)) or seen[-1]
    for again in (False, True):
        if again:
            before(model)
        step(model, optimizer)
        optimizer.step()
    session.stop()
    return torch.stack(list(seen[-1].values())).sum(1)


def test_passes_that_are_thrown_away_bring_nothing_in(running):
    often = felt(running, lambda model: model(batch()))
    assert torch.allclose(often, felt(running, lambda _: None), rtol=0.2)


def test_of_many_passes_the_last_are_kept(running):
    session, model = running(activation_gradients="Bounded"), network()
    for _ in range(MOST_PASSES + 3):
        model(batch()).sum().backward()
    flow = session.hooks.operations.flow
    assert len(flow._sources) == 3 * BLOCKS
    assert flow.known() == {*session.sites, *session.hooks.operations}


def test_nothing_of_a_graph_is_kept_that_is_thrown_away(running):
    session, model = running(activation_gradients="Bounded"), network()
    out = model(batch())
    assert len(session.hooks.ledger._entries)
    del out
    assert not len(session.hooks.ledger._entries)


def passed_on(delta: torch.Tensor) -> float:
    """By what the square of an error from above a softmax grows in it, relative to the gradient."""
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).requires_grad_() * 2
    probable = x.softmax(-1)
    above = probable.tanh()
    seen = flow()
    seen.source("above", above.grad_fn)
    seen.source("softmax", probable.grad_fn)
    seen.layer("below", x.grad_fn)
    seen.look([above.grad_fn])
    for node in (above.grad_fn, probable.grad_fn):
        seen.see_gain(node, (delta,), (node(delta),), Noise())
    return float(seen.arrived(["above", "softmax"], [[1e-4], [0.0]])["below"][0]) / 1e-4


def test_where_only_differences_of_a_gradient_matter_errors_grow():
    delta = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    assert passed_on(delta) < 2
    assert passed_on(100 + delta) > 1000


class Known:
    """A layer or an operation of which these figures are known."""

    def __init__(self, place: int, tolerance: float = 0.0, error: float | None = 0.0, elements: int = 1) -> None:
        self.place, self.tolerance, self.elements, self._error = place, tolerance, elements, error
        self.read_by: dict[Any, torch.Tensor] = {}
        self.passed_on: PassedOn | None = None

    def relative(self):
        return None if self._error is None else torch.tensor([self._error**2], dtype=torch.float64)


def flow() -> Flow:
    return Flow(failed=pytest.fail)


def test_what_was_not_seen_counts_fully_at_all_layers_before():
    layers, operations = [Known(0, 0.02), Known(2, 0.01)], [Known(1, error=0.5), Known(3, error=0.5), Known(4, error=0.5)]
    found = [0.5 / over for over in overs(operations, layers, flow())]
    assert math.hypot(*found) == pytest.approx(0.02)
    assert math.hypot(*found[1:]) == pytest.approx(0.01)
    assert found[1] == pytest.approx(found[2])


def test_an_operation_before_all_layers_is_held_to_what_they_bear():
    (over,) = overs([Known(1, error=0.5)], [Known(3, 0.1)], flow())
    assert over == pytest.approx(5.0)


def test_what_a_layer_reads_counts_at_that_layer_alone():
    """A relative error of what its product reads does as much to the weight as one of the gradient at its output."""
    above, below = Known(2, 0.1), Known(0, 0.1)
    operation = Known(1, error=0.2)
    operation.read_by = {above: torch.tensor([0.25, 1.0], dtype=torch.float64)}  # squares: half of it
    (over,) = overs([operation], [above, below], flow())
    assert over == pytest.approx(5.0)
    operation.read_by = {}
    (over,) = overs([operation], [above, below], flow())
    assert over == pytest.approx(2.0)


def test_figures_that_say_nothing_allow_nothing_and_leave_the_others_alone():
    layers = [Known(0, 0.1)]
    nothing, good = overs([Known(1, error=math.nan), Known(2, error=0.5)], layers, flow())
    assert math.isnan(nothing)
    assert good == pytest.approx(5.0)
    assert all(map(math.isnan, overs([Known(1, error=0.5)], [Known(0)], flow())))
    assert overs([Known(1, error=None)], layers, flow()) == [0.0]


def test_parts_go_by_elements():
    found = allotted(torch.ones(1, 3, dtype=torch.float64), torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    assert found.tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_what_one_layer_leaves_goes_to_operations_that_the_others_do_not_feel():
    shares = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1e-4, 1.0]], dtype=torch.float64)
    found = allotted(shares, torch.ones(3, dtype=torch.float64))
    assert (shares @ found).tolist() == pytest.approx([1.0, 1.0])
    assert found[1] > 1e3 * found[0]


NUMBERS = st.lists(st.floats(1e-6, 1e3), min_size=12, max_size=12)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_no_layer_bears_too_much_and_no_other_split_needs_fewer_bits(shares, elements, others):
    shares, weights = torch.tensor(shares).double().view(3, 4), torch.tensor(elements[:4]).double()
    found, other = allotted(shares, weights), torch.tensor(others[:4]).double()
    assert (shares @ found).max() <= 1 + 1e-9
    other = other / (shares @ other).max()
    won = float((weights * (other / found).log()).sum() / weights.sum())
    assert won < 0.05
