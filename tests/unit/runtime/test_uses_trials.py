"""A row that no test could verify is tried in the process before anything relies on it.

Here rows of nodes that CPUs make stand for those that only GPUs make: marked as unverified, as they are or planted wrong.
"""

import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kompakt_runtime.compat import graph
from kompakt_runtime.figures.export import report
from kompakt_runtime.report.text import Report
from kompakt_runtime.uses import table, trials
from kompakt_runtime.uses.consumption import consumption
from kompakt_runtime.uses.reads import Read, Row, product
from kompakt_runtime.uses.trials import TRIES, Substitutes, Trials, Verdicts
from kompakt_runtime.uses.tried import DISAGREES, UNTRIED
from tests.support.runtime.recorder import Recorder
from tests.support.runtime.small_training import Holder

NODE, SLOT = "SigmoidBackward0", "result"
HOLDS = Row(Read.ELEMENT)


# Does torch tell the shape of a node's results, and so when it is tried? Not 2.4.
TOLD = hasattr(torch.zeros((), requires_grad=True).exp().grad_fn, "_input_metadata")


@pytest.fixture(autouse=True, params=["in the forward pass", "in the backward pass"])
def early(request, monkeypatch) -> bool:
    """As in a process that begins, with a torch that tells shapes, and one that does not."""
    forward = request.param == "in the forward pass"
    if forward and not TOLD:
        pytest.skip("this torch tells no shapes")
    if not forward:
        monkeypatch.setattr(trials, "first_result", lambda node: ())
    monkeypatch.setattr(trials.PROCESS, "doubts", {})
    monkeypatch.setattr(trials.PROCESS, "tries", {})
    return forward


@pytest.fixture
def planted(monkeypatch):
    """Puts unverified rows into the table."""

    def put(node: str, **slots: Row) -> None:
        rows = {slot: replace(row, unverified=True) for slot, row in slots.items()}
        monkeypatch.setitem(table.ROWS, node, {**table.ROWS[node], **rows})

    return put


def doubt(tried: Trials, y: torch.Tensor, slot: str, row: Row) -> str:
    """Of what the node behind `y` holds in this slot. Where torch does not tell shapes that is known after a backward pass."""
    (box,) = graph.held(y.grad_fn, slot)
    use = consumption(box, y.grad_fn, slot, replace(row, unverified=True))
    said = tried.doubt(use)
    if not vars(trials)["first_result"](y.grad_fn):
        assert said in (UNTRIED, *tried._verdicts.doubts.values())
        y.backward(torch.ones_like(y), retain_graph=True)
        said = tried._verdicts.doubts.get(trials._place(use), UNTRIED)
    return said


class Tries:
    """Trials of a use of sigmoid's result, and what they tell."""

    def __init__(self) -> None:
        self.told, self.failures, self.verdicts = [], [], Verdicts()
        self.trials = Trials(lambda box: box.t, self.told.append, self.failures.append, self.verdicts)

    def doubt(self, row: Row = HOLDS, x: torch.Tensor | None = None) -> str:
        recorder = Recorder()
        recorder.substitutes = self.trials.substitutes
        with recorder:
            y = (batch() if x is None else x).requires_grad_().sigmoid()
        return doubt(self.trials, y, SLOT, row)


@pytest.fixture
def tries():
    return Tries()


def batch(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape or (6, 16), generator=torch.Generator().manual_seed(seed))


def test_a_row_that_holds_is_believed(tries):
    assert tries.doubt() == ""
    assert [(one.place, one.doubt) for one in tries.told] == [("SigmoidBackward0.result", "")]
    assert tries.told[0].seconds > 0


@pytest.mark.parametrize(
    "wrong", [Row(Read.SHAPE, ()), Row(Read.SIGN), Row(Read.RANGE), product(0), Row(Read.ELEMENT, ()), Row(Read.JOINT, ())]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_row_that_claims_too_little_is_not(tries, wrong, dtype):
    x = batch().to(dtype).requires_grad_()
    assert tries.doubt(wrong, x) in (DISAGREES, UNTRIED)
    assert tries.told[0].doubt == DISAGREES


@pytest.mark.parametrize("row", [HOLDS, product(0)])
def test_a_row_is_tried_once(tries, row):
    first = tries.doubt(row)
    assert tries.doubt(row) == first
    assert len(tries.told) == 1


def test_all_sessions_of_a_process_know_what_one_has_found():
    verdicts, told = trials.PROCESS, []
    for _ in range(2):
        one = Tries()
        one.trials = Trials(lambda box: box.t, told.append, one.failures.append)
        one.doubt()
    assert len(told) == 1 == len(verdicts.doubts)


def test_a_trial_that_cannot_run_is_counted_by_its_error_and_given_up_after_some(tries, monkeypatch):
    monkeypatch.setattr(tries.trials.substitutes, "run", lambda *args: 1 / 0)
    assert [tries.doubt() for _ in range(TRIES + 2)] == [UNTRIED] * (TRIES + 2)
    assert tries.failures == ["TrialFailedZeroDivisionError"] * TRIES


@pytest.mark.parametrize("x", [torch.full((4, 4), float("nan")), torch.full((4, 4), -1e4)], ids=["not a number", "all zero"])
def test_a_tensor_that_tells_nothing_is_no_proof_and_the_next_one_is_tried(tries, x):
    assert tries.doubt(x=x) == UNTRIED
    assert tries.doubt() == ""


def test_a_row_of_which_nothing_has_an_effect_is_not_believed(tries, monkeypatch):
    """As where a factor beside it is zero: nothing moves whatever is read."""
    monkeypatch.setattr(tries.trials.substitutes, "run", lambda node, deltas, handle, t: (torch.zeros(6, 16),))
    assert tries.doubt() == UNTRIED


def test_replicas_on_threads_of_their_own_wait_for_the_one_that_tries(tries, monkeypatch):
    held, run = [], Substitutes.run
    monkeypatch.setattr(Substitutes, "run", lambda *args: (held.append(tries.verdicts.lock.locked()), run(*args))[1])
    found = []
    threads = [threading.Thread(target=lambda: found.append(tries.doubt())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [""] * 4
    assert len(tries.told) == 1
    assert set(held) == {True}


def test_a_tensor_that_is_kept_in_another_form_is_not_looked_at(tries):
    """What is read of a copy would tell of the copy."""
    tries.trials = Trials(lambda box: None, tries.told.append, tries.failures.append, Verdicts())
    assert tries.doubt() == UNTRIED
    assert not tries.told


def test_where_somebody_wants_some_gradients_only_a_backward_pass_tells_nothing(early):
    tried, told = Tries(), []
    recorder = Recorder()
    recorder.substitutes = tried.trials.substitutes
    x, target = batch().requires_grad_(), batch(seed=2).requires_grad_()
    with recorder:
        y = F.mse_loss(x, target)
    (box,) = graph.held(y.grad_fn, "self")
    tried.trials.doubt(consumption(box, y.grad_fn, "self", replace(product(0, 1), unverified=True)))
    told += tried.told
    torch.autograd.grad(y, x)
    assert len(tried.told) == len(told) == (1 if early else 0)


def test_which_gradients_are_asked_for_makes_another_trial():
    """Of a row for two gradients nothing is known of the one that nobody has asked for so far."""
    told, verdicts = [], Verdicts()
    tried = Trials(lambda box: box.t, told.append, print, verdicts)
    for wanted in (False, True, True):
        recorder = Recorder()
        recorder.substitutes = tried.substitutes
        with recorder:
            y = F.mse_loss(batch().requires_grad_(), batch(seed=2).requires_grad_(wanted))
        doubt(tried, y, "self", product(0, 1))
    assert [one.doubt for one in told] == ["", ""]


class Layers(nn.Module):
    """Nodes of each kind of row that something may rely on: norms, functions, linear operands, signs, shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.frozen = nn.Conv1d(6, 6, 3, padding=1).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.frozen(torch.sigmoid(self.up(self.norm(x))))) * 1.5)


def trained(steps: int = 4, layers: type[nn.Module] = Layers):
    """Gradients after each of so many steps that move nothing."""
    torch.manual_seed(0)
    holder = Holder(layers(), lambda model, x: model(x))
    optimizer = torch.optim.SGD(holder.parameters(), lr=0.0, momentum=0.9)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        holder(batch(8, 6, 16).requires_grad_() * 1).square().sum().backward()
        found.append([w.grad.clone() for w in holder.parameters() if w.grad is not None])
        optimizer.step()
    return found


def equal(ours, plain) -> bool:
    return all(torch.equal(a, b) for one, other in zip(ours, plain, strict=True) for a, b in zip(one, other, strict=True))


ROWS = {
    "NativeLayerNormBackward0.input": Row(Read.NORM, (0, 1)),
    "SigmoidBackward0.result": HOLDS,
    "AddmmBackward0.mat1": product(2),
    "ReluBackward0.result": Row(Read.SIGN),
    "ConvolutionBackward0.input": product(1, idle=Read.SHAPE),
}


def kept(session) -> int:
    return session.figures.saved_bytes


@pytest.mark.parametrize("place", ROWS)
def test_a_row_that_holds_packs_as_if_it_were_verified(running, planted, early, place):
    """From the next step on where it was tried in a backward pass."""
    verified = running()
    usual = trained()
    verified.stop()
    node, slot = place.split(".")
    planted(node, **{slot: Row(Read.EXACT, ())})
    without = running()
    trained()
    without.stop()
    planted(node, **{slot: ROWS[place]})
    session = running()
    assert equal(trained(), usual) or not early
    assert kept(session) < kept(without) < session.figures.plain_bytes
    assert kept(session) == kept(verified) or not early
    assert bool(session.figures.raw[UNTRIED]) is not early
    assert [(one.place, one.doubt) for one in session.figures.tried] == [(place, "")]


WRONG = {
    "NativeLayerNormBackward0.input": Row(Read.PRODUCT, (1,)),
    "SigmoidBackward0.result": Row(Read.SIGN),
    "AddmmBackward0.mat1": Row(Read.SHAPE, ()),
    "ReluBackward0.result": Row(Read.SHAPE, ()),
}


@pytest.mark.parametrize("place", WRONG)
def test_a_row_that_is_wrong_keeps_its_tensors_plain_and_is_counted(running, planted, early, place):
    """With nothing but this row to rely on, gradients are those of plain training."""
    plain = trained()
    node, slot = place.split(".")
    planted(node, **{slot: WRONG[place]})
    for other in set(ROWS) - {place}:
        name, at = other.split(".")
        planted(name, **{at: Row(Read.EXACT, ())})
    session = running()
    assert equal(trained(), plain)
    assert session.figures.raw[DISAGREES] >= (4 if early else 3)
    assert session.figures.raw_bytes[DISAGREES] > 0
    assert [(one.place, one.doubt) for one in session.figures.tried] == [(place, DISAGREES)]
    assert place in {row[0] for row in session.figures.unknown.rows()}


def test_of_several_rows_that_are_wrong_the_plain_gradients_come(running, planted):
    plain = trained()
    for place, row in (WRONG | {"ConvolutionBackward0.input": Row(Read.EXACT, ())}).items():
        node, slot = place.split(".")
        planted(node, **{slot: row})
    session = running()
    assert equal(trained(), plain)
    assert {one.place for one in session.figures.tried} == set(WRONG)
    assert session.figures.saved_bytes == session.figures.plain_bytes


def test_a_trial_takes_no_part_in_the_training(running, planted, early):
    """Random state, gradients, hooks on tensors and nodes, and counts of what was read are as without it."""

    class Drawing(Layers):
        def forward(self, x):
            y = torch.sigmoid(self.up(F.dropout(x, 0.5)))
            y.register_hook(lambda _: calls.append("tensor"))
            y.grad_fn.register_hook(lambda *_: calls.append("node"))
            y.grad_fn.register_prehook(lambda _: calls.append("before"))
            states.append(torch.get_rng_state())
            return self.down(y * torch.tanh(y))

    def run(session):
        calls.clear()
        states.clear()
        found = trained(layers=Drawing)
        return found, list(calls), torch.stack(states), torch.get_rng_state()

    calls, states = [], []
    verified = run(usual := running())
    usual.stop()
    planted(NODE, result=HOLDS)
    planted("MulBackward0", self=product(1))  # what it reads beside that is looked at as well
    tried = run(session := running())
    assert session.figures.tried
    assert equal(verified[0], tried[0]) or not early
    assert verified[1] == tried[1]
    assert torch.equal(verified[2], tried[2])
    assert torch.equal(verified[3], tried[3])
    assert report(usual.figures)["plainBytes"] == report(session.figures)["plainBytes"]
    assert usual.figures.raw == session.figures.raw or not early


def test_nobody_tries_what_nothing_would_rely_on(running, planted):
    """In mode Lossless every bit is read; and small tensors stay whatever reads them."""
    planted(NODE, result=HOLDS)
    planted("AddmmBackward0", mat1=product(2))
    for settings in ({"mode": "Lossless"}, {"min_tensor_bytes": 1 << 20}):
        session = running(**settings)
        trained()
        session.stop()
        assert not session.figures.tried


def test_a_backward_function_that_draws_numbers_changes_no_random_state(tries, monkeypatch):
    run = tries.trials.substitutes.run
    monkeypatch.setattr(tries.trials.substitutes, "run", lambda *args: (torch.rand(1), run(*args))[1])
    before = torch.get_rng_state()
    assert tries.doubt() == ""
    assert torch.equal(torch.get_rng_state(), before)


def test_under_autocast_a_node_runs_as_in_a_backward_pass(tries):
    """Which has no autocast: a product of float32 would be made in bfloat16."""
    seen = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run = tries.trials.substitutes.run
        tries.trials.substitutes.run = lambda *args: (seen.append(torch.is_autocast_enabled("cpu")), run(*args))[1]
        assert tries.doubt() == ""
        assert torch.is_autocast_enabled("cpu")
    assert set(seen) == {False}
    assert len(seen) <= 8


def test_a_trial_costs_so_many_runs_of_the_node(tries, monkeypatch):
    runs = []
    run = tries.trials.substitutes.run
    monkeypatch.setattr(tries.trials.substitutes, "run", lambda *args: (runs.append(1), run(*args))[1])
    for _ in range(3):
        tries.doubt()
    assert len(runs) == 8


def test_the_report_names_rows_that_were_tried(running, planted):
    planted(NODE, result=HOLDS)
    planted("NativeLayerNormBackward0", input=Row(Read.SHAPE, ()))
    session = running()
    trained()
    (line,) = (note for note in Report.of(session.config, session.figures).notes() if note.startswith("tried"))
    assert "tried on this machine: 2 rows of the table in 0.0" in line
    assert line.endswith("RowDisagrees: NativeLayerNormBackward0.input")


def test_where_gradients_of_activations_are_exact_no_operand_of_one_is_tried(running, planted):
    planted(NODE, result=HOLDS)
    session = running(activation_gradients="Exact")
    trained()
    assert not session.figures.tried


def test_of_processes_that_each_tried_a_row_the_report_names_it_once(running, planted):
    planted(NODE, result=HOLDS)
    session = running()
    trained()
    row = report(session.figures)
    longer, shorter = ({**row, "rowsTried": [["A.b", "", seconds]]} for seconds in (3.0, 1.0))
    (line,) = (note for note in Report.of_rows(session.config, [longer, shorter, row]).notes() if note.startswith("tried"))
    assert line.startswith("tried on this machine: 2 rows of the table in 3.")


def test_a_forked_process_counts_its_own_trials(running, planted):
    planted(NODE, result=HOLDS)
    session = running()
    trained()
    session.figures.begin()
    assert not session.figures.tried
