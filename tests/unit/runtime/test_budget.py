"""Trainings that are given a budget of memory: whether they stay within it, and what is packed for that."""

from types import SimpleNamespace

import pytest
import torch

from kompakt_runtime.amounts import Amount
from kompakt_runtime.budget import control, recording
from kompakt_runtime.budget.control import BudgetControl
from kompakt_runtime.config import ConfigError, RuntimeConfig
from kompakt_runtime.cost.overhead import Clock
from kompakt_runtime.report.text import Report
from tests.support.runtime.budgeted import OTHER, ROWS, WIDTH, Counted, EvenClock, network, products, trained
from tests.support.runtime.compiling import compiled


def said(running, budget, model=None, steps: int = 8, **settings):
    session = running(memory=Counted, memory_budget=Amount.of(str(budget)), **settings)
    peaks = trained(session, model or network(), steps)
    return session, peaks, session.figures.budget()


@pytest.fixture
def ends(running):
    """Peaks of a step that packs all, as the plan has it, and of one that packs nothing."""
    session, _, found = said(running, 1)
    session.stop()
    session, peaks, _ = said(running, 4 * OTHER)
    session.stop()
    return found["leastBytes"], max(peaks)


def test_what_needs_no_packing_stays_as_it_is(running):
    session, peaks, found = said(running, 4 * OTHER)
    assert found["reached"]
    assert found["packed"] == 0
    assert found["milliseconds"] == 0.0
    assert session.figures.raw["WithinBudget"] > 0
    assert max(peaks) <= found["plainBytes"]


def test_a_budget_that_is_too_small_packs_all_and_says_what_would_do(running):
    session, peaks, found = said(running, OTHER // 2)
    assert not found["reached"]
    assert found["packed"] == found["layers"] > 4
    assert not session.figures.raw["WithinBudget"]
    assert found["leastBytes"] >= max(peaks[4:]) > found["bytes"]
    assert found["sharded"]["2"] > found["sharded"]["8"] > 0


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_each_step_by_the_plan_is_within_the_budget(running, ends, share):
    least, most = ends
    budget = int(least + share * (most - least))
    _session, peaks, found = said(running, budget, steps=12)
    assert found["reached"]
    assert 0 < found["packed"] < found["layers"]
    assert max(peaks[4:]) <= budget
    assert 0 < found["milliseconds"] < found["allMilliseconds"]
    assert found["moreMilliseconds"] == 0.0  # a GiB more, and nothing would be packed


def test_a_layer_that_stays_has_the_gradient_of_plain_training(running):
    """With nothing packed all have it."""
    session = running(memory=Counted, memory_budget=Amount.of("90%"))
    model = network()
    trained(session, model, 6)
    x = torch.randn(ROWS, WIDTH)
    model.zero_grad()
    model(x).square().mean().backward()
    ours = [weight.grad.clone() for weight in model.parameters()]
    session.stop()
    model.zero_grad()
    model(x).square().mean().backward()
    assert all(torch.equal(mine, weight.grad) for mine, weight in zip(ours, model.parameters(), strict=True))


def of_activations(budget: int, peak: int) -> float:
    """How much of what a budget leaves for them a step takes."""
    return (peak - OTHER) / (budget - OTHER)


def test_steps_by_the_plan_use_what_measuring_took_besides(running, ends, monkeypatch):
    """The first step by a plan shows that it takes less than was feared."""
    monkeypatch.setattr(control, "Clock", EvenClock)
    least, most = ends
    budget = int(least + 0.75 * (most - least))
    session = running(memory=Counted, memory_budget=Amount.of(str(budget)))
    peaks = trained(session, network(), 48)
    first, later = peaks[6], max(peaks[7:])
    assert first < later <= budget
    assert budget - later < 0.75 * (budget - first)
    assert of_activations(budget, later) > 0.88


def test_a_step_of_a_smaller_batch_proves_nothing(running, ends):
    least, most = ends
    session = running(memory=Counted, memory_budget=Amount.of(str((least + most) // 2)))
    model, counted = network(), session._budget._unseen
    trained(session, model, 6)
    before = counted.at.clone()
    trained(session, model, 1, rows=lambda step: ROWS // 2)
    assert session.figures.raw["WithinBudget"]
    assert torch.equal(counted.at, before)
    trained(session, model, 1)
    assert not torch.equal(counted.at, before)


def test_the_step_after_one_that_was_measured_is_recorded_anew(running):
    """Steps 1, 2, 3, 5 and 9 are measured."""
    session, model, seen = running(memory=Counted, memory_budget=Amount.of("1")), network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    session.stepped = lambda: seen.append(session.recorded_step)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(ROWS, WIDTH)).square().mean().backward()
        optimizer.step()
    assert [i + 1 for i in range(1, 12) if seen[i] is not seen[i - 1]] == [4, 6, 10]


def test_a_larger_batch_than_the_recorded_one_makes_the_plan_tighter(running, ends):
    """The first step of it may take more than the budget; those after do not."""
    _, most = ends
    budget = int(OTHER + 1.3 * (most - OTHER))
    session = running(memory=Counted, memory_budget=Amount.of(str(budget)))
    peaks = trained(session, network(), 8, rows=lambda step: ROWS if step < 6 else 2 * ROWS)
    assert max(peaks[4:6]) <= budget < peaks[6]
    assert peaks[7] <= budget


UNSEEN = 300_000


class Forgetful(Counted):
    """Each step takes `UNSEEN` bytes that no reading sees. After some steps the program has the peak begin anew, each time when
    activations are gone.
    """

    def __init__(self, figures, device) -> None:
        super().__init__(figures, device)
        self._reads = 0

    def peak(self) -> int:
        self._reads += 1
        return super().peak() + UNSEEN if self._reads < 16 else self.now()


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_peak_that_begins_anew_proves_nothing(running, ends, monkeypatch, share):
    monkeypatch.setattr(control, "Clock", EvenClock)
    least, most = ends
    budget = int(least + share * (most - least)) + UNSEEN
    session = running(memory=Forgetful, memory_budget=Amount.of(str(budget)))
    peaks = trained(session, network(), 32)
    assert session.figures.raw["WithinBudget"] > 0
    assert max(peaks[4:]) + UNSEEN <= budget


def test_compiled_code_packs_no_more_than_the_budget_takes(running, monkeypatch):
    """What a plan packs decides what its steps prove to be free, so it is the same in each run by an even clock."""
    monkeypatch.setattr(control, "Clock", EvenClock)
    session = running(memory=Counted, memory_budget=Amount.of("1"))
    trained(session, compiled(products()), 6)
    least, most = (session.figures.budget()[name] for name in ("leastBytes", "plainBytes"))
    session.stop()
    torch._dynamo.reset()
    budget = (least + most) // 2
    session, peaks, found = said(running, budget, compiled(products()), steps=12)
    assert found["reached"]
    assert 0 < found["packed"] < found["layers"]
    assert max(peaks[4:]) <= budget


def test_measured_steps_pack_all(running):
    """So that layers that stay for now are known, and what measuring takes more is no matter."""
    session, _, _found = said(running, 4 * OTHER, steps=4)
    before = session.figures.compressed
    for site in session.sites:
        site.observing = True
    trained(session, network(), 1)
    assert session.figures.compressed > before


def test_memory_that_cannot_be_read_costs_the_plan_and_not_the_training(running, monkeypatch):
    def fails(self):
        raise OSError("no such file")

    monkeypatch.setattr(Counted, "now", fails)
    session, peaks, found = said(running, 4 * OTHER)
    assert found == {}
    assert len(peaks) == 8
    assert session.figures.compressed


class Device:
    """Memory that a test sets: what is used now, and the most so far."""

    def __init__(self, before: int) -> None:
        self.used, self.most = 0, before

    def there(self) -> int:
        return 1000

    def now(self) -> int:
        return self.used

    def peak(self) -> int:
        return self.most

    def takes(self, used: int) -> None:
        self.used, self.most = used, max(self.most, used)


class Copy:
    """What is kept of a tensor of 50 bytes: 10."""

    nbytes, held_bytes, probe = 50, 10, torch.empty(0)


class Steps:
    """Steps of one layer, of which memory and time are set; without the codec's working memory."""

    def __init__(self, monkeypatch, budget: int, before: int = 0) -> None:
        """before: bytes that were taken at most before training."""
        monkeypatch.setattr(recording, "working_bytes", lambda *what: 0)
        self.control = BudgetControl(Amount.of(str(budget)), lambda device: Device(before))
        self.optimizer = torch.optim.SGD([torch.zeros(1)])
        self.layer = SimpleNamespace(name="layer", observing=False)

    def step(self, used: int, most: int, observing: bool = False) -> bool:
        """Whether the layer was packed. used: while it is kept; most: of the step."""
        self.control.entered(torch.device("cpu"))
        self.layer.observing = observing
        memory, copy = self.control._memory, Copy()
        memory.takes(used)
        packed = not self.control.leaves(self.layer)
        if packed:
            with self.control.packing(copy, "layer"):
                pass
        memory.takes(most)
        memory.used = used
        with self.control.reading(copy):
            pass
        self.control.stepped(self.optimizer, observing=False)
        return packed


def test_what_a_step_takes_between_readings_is_in_the_plan(monkeypatch):
    """Each step of these has taken 150, so no plan is within 110."""
    steps = Steps(monkeypatch, 110)
    assert all(steps.step(used=60, most=150) for _ in range(8))
    found = steps.control.said()
    assert (found["reached"], found["leastBytes"]) == (False, 150)


def test_what_was_taken_before_training_is_not(monkeypatch):
    """To load a model, say."""
    steps = Steps(monkeypatch, 200, before=500)
    assert [steps.step(used=60, most=90) for _ in range(6)] == [True] * 4 + [False] * 2
    assert steps.control.said()["reached"]


def test_what_a_step_takes_more_than_its_plan_said_is_in_the_next(monkeypatch):
    steps = Steps(monkeypatch, 155)
    assert [steps.step(used=60, most=100) for _ in range(5)] == [True] * 4 + [False]
    said = steps.control.said()["peakBytes"]
    assert 140 <= said <= 155
    steps.step(used=60, most=153)
    assert steps.control.said()["peakBytes"] == 153
    assert not steps.step(used=60, most=158)
    found = steps.control.said()
    assert found["packed"] == 1
    assert found["reached"]
    assert steps.step(used=60, most=100)


def test_what_is_taken_between_steps_and_while_all_is_packed_is_not(monkeypatch):
    """By an evaluation, or by measuring."""
    steps = Steps(monkeypatch, 155)
    for _ in range(5):
        steps.step(used=60, most=100)
    steps.control._memory.takes(900)
    assert not steps.step(used=60, most=100)
    assert steps.step(used=60, most=950, observing=True)
    assert steps.control.said()["peakBytes"] <= 155
    assert steps.step(used=60, most=100), "recorded anew"
    assert not steps.step(used=60, most=100)


def test_a_tensor_belongs_to_the_layer_whose_bound_it_has_at_last(monkeypatch):
    monkeypatch.setattr(recording, "working_bytes", lambda *what: 0)
    recorded, copy = recording.Recording(Clock(gpu=False), torch.device("cpu"), lambda: 100), Copy()
    for layer in ("first", "tighter"):
        with recorded.packing(copy, layer):
            pass
    recorded.ended(None, 0)
    step = recorded.step()
    assert [one.layer for one in step.tensors] == ["tighter"]
    assert list(step.seconds) == ["tighter"]


def test_tensors_of_other_devices_are_in_no_plan():
    recorded, copy = recording.Recording(Clock(gpu=False), torch.device("meta"), lambda: 100), Copy()
    with recorded.packing(copy, "layer"):
        pass
    assert not recorded.anything


def test_a_step_of_too_many_tensors_gives_no_plan_and_takes_no_more_memory(monkeypatch):
    monkeypatch.setattr(recording, "MOST_READINGS", 3)
    steps = Steps(monkeypatch, 155)
    for _ in range(3):
        steps.step(used=60, most=100)
    for _ in range(4):
        with steps.control.packing(Copy(), "layer"):
            pass
    steps.step(used=60, most=100)
    assert steps.control.said() == {}


def test_a_step_that_turns_out_to_be_measured_is_not_the_recorded_one(monkeypatch):
    steps = Steps(monkeypatch, 155)
    for _ in range(3):
        steps.step(used=60, most=100)
    assert steps.step(used=60, most=100, observing=True)
    assert steps.control.said() == {}
    assert steps.step(used=60, most=100)
    assert steps.control.said()["reached"]


def test_an_optimizer_that_steps_no_more_is_followed_by_another(monkeypatch):
    steps = Steps(monkeypatch, 155)
    first = steps.optimizer
    steps.step(used=60, most=100)
    steps.optimizer = torch.optim.SGD([torch.zeros(1)])
    for _ in range(40):
        steps.step(used=60, most=100)
    assert steps.control.said()["reached"]
    assert first is not steps.optimizer


def test_an_optimizer_with_a_state_of_its_own_kind_costs_nothing(monkeypatch):
    steps = Steps(monkeypatch, 155)
    steps.optimizer.state["shared"] = torch.zeros(3)
    for _ in range(6):
        steps.step(used=60, most=100)
    assert steps.control.said()["reached"]


def test_a_plan_that_cannot_be_made_costs_no_step(monkeypatch):
    steps = Steps(monkeypatch, 155)
    monkeypatch.setattr(control, "state_bytes", lambda optimizer: 1 / 0)
    assert all(steps.step(used=60, most=100) for _ in range(6))
    assert steps.control.said() == {}


@pytest.mark.parametrize("word", ["there", "peak"])
def test_a_device_whose_memory_cannot_be_read_costs_the_plan_and_not_compression(running, monkeypatch, word):
    """Nor the forward pass: its hooks run while it begins."""
    monkeypatch.setattr(Counted, word, lambda self: 1 / 0)
    session, peaks, found = said(running, OTHER)
    assert found == {}
    assert len(peaks) == 8
    assert session.figures.compressed
    assert not any("Failed" in reason for reason in session.figures.raw)


def test_without_a_budget_nothing_is_recorded(running):
    session = running()
    trained(session, network(), 6)
    assert session.figures.budget() == {}
    assert not session.figures.raw["WithinBudget"]


def test_the_report_says_what_the_budget_cost_and_what_more_would_buy(running, ends):
    least, most = ends
    session, _, found = said(running, (least + most) // 2)
    text = str(Report.of(session.config, session.figures))
    assert f"with {found['packed']} of {found['layers']} layers packed, which cost {found['milliseconds']} ms of it" in text
    assert "1 GiB more would save" in text


def test_the_report_says_what_is_missing_to_a_budget_that_is_too_small(running):
    session, _, _found = said(running, OTHER // 2)
    text = str(Report.of(session.config, session.figures))
    assert "not reached: with all that may be packed a step takes" in text
    assert "by FSDP2 would leave" in text
    assert "on 8 workers" in text


def test_the_report_of_a_short_run_says_that_nothing_was_planned(running):
    session, _, _ = said(running, OTHER, steps=2)
    assert "all was packed; a plan takes four optimizer steps or more" in str(Report.of(session.config, session.figures))


@pytest.mark.parametrize("mode", ["None", "Lossless"])
def test_a_budget_needs_a_mode_that_can_choose(mode):
    with pytest.raises(ConfigError, match=rf"KOMPAKT_MEMORY_BUDGET is '1Gi'; that needs mode ErrorBounded.*not {mode}"):
        RuntimeConfig.from_env({"KOMPAKT_MODE": mode, "KOMPAKT_MEMORY_BUDGET": "1Gi"})


def test_a_wrong_budget_is_named():
    with pytest.raises(ConfigError, match=r"KOMPAKT_MEMORY_BUDGET is '20GiB'; right is an amount above 0 such as 20Gi"):
        RuntimeConfig.from_env({"KOMPAKT_MODE": "ErrorBounded", "KOMPAKT_MEMORY_BUDGET": "20GiB"})
