"""What compression costs in time: steps with and without in turn where memory allows, else the codec's own time."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kompakt_runtime.bounds import layer as bounds
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.cost import overhead
from kompakt_runtime.cost.overhead import FIRST, TIMED, TURNS, Overhead
from kompakt_runtime.figures.counted import Figures
from tests.support.runtime.small_training import network, warm_up

STEPS = FIRST + TURNS + TIMED + 2
SCRIPT = Path(__file__).parents[2] / "support" / "runtime" / "train.py"


@pytest.fixture
def trained(monkeypatch):
    """Trains with a clock of its own; gives the counter and the numbers of the plain steps.

    Seconds of a step: plain 1, compressed 1.2, measured 3; of the codec in each compressed one 0.3.
    """

    def train(plain=True, room=1 << 40, saves=1000, observed=bounds.observed):
        now = [0.0]
        monkeypatch.setattr(overhead.time, "perf_counter", lambda: now[0])  # type: ignore[attr-defined]
        monkeypatch.setattr(overhead, "room", lambda device: room)
        figures, optimizer, other = Figures(), object(), object()
        counter = Overhead(figures, plain=plain, timed=True)
        counter.entered(network())
        off = []
        for step in range(STEPS):
            if counter.off:
                off.append(step)
                now[0] += 1
            else:
                figures.plain_bytes += saves
                with counter.codec():
                    now[0] += 0.3
                now[0] += 2.7 if observed(step) else 0.9
            counter.stepped(optimizer, observed(step + 1))
            counter.stepped(other, False)
        return counter, off

    return train


def test_steps_in_turn_tell_the_overhead_with_its_share_of_measured_steps(trained):
    counter, off = trained()
    assert float(counter.said()["percent"]) == pytest.approx(100 * (1.2 + 1.8 / 32 - 1), abs=0.06)
    assert float(counter.said()["codecPercent"]) == pytest.approx(100 * 0.3 / 0.9, abs=0.06)
    assert len(off) >= TURNS // 2 - 1
    assert min(off) > FIRST
    assert max(off) < FIRST + TURNS


def test_a_measured_step_is_never_a_plain_one(trained):
    _, off = trained()
    again = off[3]  # one whose measurement has to be repeated
    counter, others = trained(observed=lambda step: step == again or bounds.observed(step))
    assert others == [step for step in off if step != again]
    assert float(counter.said()["percent"]) == pytest.approx(100 * (1.2 + 1.8 / 32 - 1), abs=0.06)


@pytest.mark.parametrize("kept", [{"plain": False}, {"room": 999}], ids=["raised batch", "no room"])
def test_without_room_no_step_is_plain_and_the_codecs_time_is_summed(trained, kept):
    counter, off = trained(**kept)
    assert off == []
    assert set(counter.said()) == {"codecPercent"}
    assert not counter.disturbed


def test_all_ranks_take_the_same_steps(trained):
    assert trained()[1] == trained(saves=77)[1]


def test_room_leaves_a_share_of_the_memory_alone(monkeypatch):
    monkeypatch.setattr(overhead, "limit", lambda device, environ: 1000)
    monkeypatch.setattr(overhead, "peak", lambda device: 700)
    assert overhead.room(torch.device("cpu")) == 200


def train(model, steps):
    warm_up(model, steps, optimizer_class=torch.optim.Adam)


def test_a_lossless_training_with_plain_steps_in_it_is_the_plain_training(running):
    model = network()
    plain = copy.deepcopy(model)
    session = running(mode="Lossless", overhead=True)
    train(model, STEPS)
    session.stop()
    train(plain, STEPS)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    assert STEPS - TURNS // 2 <= session.figures.forwards < STEPS - TURNS // 2 + 3
    assert float(session.figures.overhead()["percent"]) > -90


def test_a_raised_batch_never_trains_a_step_plainly(running):
    session = running(batch="Raise", overhead=True)
    train(network(), STEPS)
    assert session.figures.forwards == STEPS
    assert set(session.figures.overhead()) == {"codecPercent"}


def test_a_suggestion_is_of_the_steps_before_the_first_plain_one(running):
    session = running(batch="Suggest", overhead=True)
    model = network()
    train(model, STEPS)
    session.figures.suggested_batch = -1
    train(model, 3)
    assert session.figures.suggested_batch == -1


@pytest.mark.parametrize(("told", "measures"), [({}, True), ({"KOMPAKT_VERIFY": "1"}, False), ({"KOMPAKT_DRY_RUN": "1"}, False)])
def test_a_program_that_uses_the_library_is_not_disturbed(told, measures):
    assert RuntimeConfig.from_env(told).overhead is measures
    assert RuntimeConfig.of("Lossless", 0.01, {}, 0, False).overhead is False


@pytest.mark.timeout(150)
def test_a_process_says_its_overhead_in_its_last_words(environ, last_words):
    command = [sys.executable, SCRIPT, "16", str(STEPS)]
    result = subprocess.run(command, env=environ, capture_output=True, timeout=120, check=False)
    found = last_words()["overhead"]
    print(found)
    assert result.returncode == 0
    assert set(found) == {"percent", "codecPercent"}
    assert float(found["percent"]) > 5, "on a CPU packing takes longer than a copy"
