"""A batch that is raised: measured by an attempt that ends by itself, and never trained plainly."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from kompakt_runtime.config import RuntimeConfig, failure_policy
from kompakt_runtime.cost import headroom
from kompakt_runtime.cost.raising import AFTER, STEPS
from tests.support.runtime.small_training import Holder, batch, network, warm_up

SCRIPT = Path(__file__).parents[2] / "support" / "runtime" / "train.py"


@pytest.fixture
def script(environ, last_words):
    """Runs the script as a pod does; gives the process and what it left in the termination message."""

    def run(told: str, *words: str, **more: str) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
        command, environment = [sys.executable, SCRIPT, *words], {**environ, "KOMPAKT_BATCH": told, **more}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False), last_words()

    return run


@pytest.mark.timeout(150)
def test_an_attempt_that_measures_ends_by_itself_and_says_what_fits(script):
    ended, words = script("Measure", "64", "1000")
    assert ended.returncode == 0, ended.stderr
    assert f"step {STEPS + AFTER - 2} " in ended.stdout
    assert f"step {STEPS + AFTER} " not in ended.stdout
    assert "saved a model" not in ended.stdout, "a `finally` of the script must not save what has hardly trained"
    assert (words["batchMeasured"], words["batch"], words["active"]) == (True, 64, True)
    assert words["suggestedBatch"] > 64, "the machine has room for more"


@pytest.mark.timeout(150)
def test_a_raised_batch_trains_to_its_end_and_ends_when_compression_does(script):
    ended, words = script("Raise", "8", "14")
    assert (ended.returncode, "saved a model" in ended.stdout) == (0, True), ended.stderr
    assert "batchMeasured" not in words

    ended, words = script("Raise", "8", "1000", FAIL="1")
    assert ended.returncode == 78
    assert "step 11" in ended.stdout
    assert "step 13" not in ended.stdout
    assert "activations of a step were kept plain (PackFailedTypeError)" in ended.stderr
    assert (words["active"], words["reason"]) == (False, "PackFailedTypeError")


def test_a_training_of_which_nothing_is_compressed_ends_with_its_first_step(running):
    session = running(batch="Raise", mode="Lossless", min_tensor_bytes=1 << 30)
    with pytest.raises(SystemExit) as ended:
        warm_up(network(), steps=1)
    assert ended.value.code == 78
    assert session.figures.failure == "NothingCompressed"


def test_a_second_optimizer_that_had_no_backward_pass_of_its_own_ends_nothing(running):
    session = running(batch="Raise")
    model = network()
    optimizers = [torch.optim.SGD(model[place].parameters(), lr=1e-3) for place in (0, 2)]
    for step in range(4):
        model(batch(step)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert (session.figures.steps, session.figures.failure) == (8, "")


@pytest.mark.parametrize("there", [True, False])
def test_measuring_ends_two_steps_after_its_figures_are_written_if_they_can_be(running, tmp_path, there):
    log, codes = tmp_path / "log", []
    if there:
        log.touch()
    session = running(batch="Measure", termination_log=str(log))
    session._raising._end = codes.append
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(STEPS + AFTER + 3):
        assert (log.exists() and bool(log.read_text())) == (there and step >= STEPS)
        assert codes == ([0] if there and step >= STEPS + AFTER else [])
        model(batch(step)).square().sum().backward()
        optimizer.step()
    assert session.figures.measured is there


@pytest.mark.parametrize(("told", "policy"), [("Suggest", "Ignore"), ("Measure", "Fail"), ("Raise", "Fail")])
def test_raising_implies_the_policy_fail(told, policy):
    environ = {"KOMPAKT_BATCH": told, "KOMPAKT_FAILURE_POLICY": "Ignore", "KOMPAKT_MODE": "Lossless"}
    assert failure_policy(environ) == RuntimeConfig.from_env(environ).failure_policy == policy


def test_a_model_that_is_given_its_inputs_by_name_has_a_batch_too(running):
    rows = Holder(nn.Linear(1, 1), lambda model, x: model(x.reshape(-1, 1)))  # 32 rows, which are no samples
    session = running(batch="Suggest")
    Holder(nn.Sequential(network(), rows), lambda model, x: model(x))(x=batch()).square().sum().backward()
    assert session.figures.batch == 8


def test_the_inputs_of_the_first_forward_pass_do_not_count_as_what_any_batch_takes(running, monkeypatch):
    monkeypatch.setattr(headroom, "held", lambda device: 1 << 20)
    session = running(batch="Suggest")
    network()(batch())
    assert session._headroom._held == (1 << 20) - batch().nbytes
