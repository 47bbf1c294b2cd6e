"""A file switches compression off between two optimizer steps of a training that runs, and on again when it is gone."""

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.cost.overhead import FIRST
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.launch import run
from kompakt_runtime.report.text import Report
from tests.support.runtime.small_training import batch, network

SCRIPT = Path(__file__).parents[2] / "support" / "runtime" / "train.py"
STEPS, OFF = 9, range(3, 6)  # forward passes by number; those that the file is there for


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "off"


def by_step(session, file, steps=STEPS, off=OFF):
    """Of each step: plain and kept bytes, passes counted as switched off so far, and the bounds in force when it began."""
    model, figures = network(), session.figures
    optimizer = sgd(model)
    for step in range(steps):
        bounds = {site.name: site.bound for site in session.sites if site.bound is not None}
        plain, kept = figures.plain_bytes, figures.saved_bytes
        optimizer.zero_grad()
        model(batch(step)).square().sum().backward()
        if step + 1 == off.start:
            file.touch()  # while a step runs: it counts from the next one on
        if step + 1 == off.stop:
            file.unlink()
        optimizer.step()
        yield figures.plain_bytes - plain, figures.saved_bytes - kept, figures.raw["SwitchedOff"], bounds


def test_steps_pass_through_while_the_file_is_there_and_known_bounds_serve_again(running, file):
    session = running(switch_file=str(file))
    plain, kept, switched_off, bounds = zip(*by_step(session, file), strict=True)
    assert [step for step in range(STEPS) if not plain[step]] == list(OFF)
    assert all(2 * kept[step] < plain[step] for step in range(STEPS) if step not in OFF)
    assert switched_off == (0, 0, 0, 1, 2, 3, 3, 3, 3)
    assert bounds[OFF.stop].keys() == bounds[OFF.start].keys() == {"0", "2", "5"}
    assert bounds[OFF.stop] == bounds[OFF.start]
    assert session.figures.forwards == STEPS - len(OFF)


def test_what_is_packed_stays_readable(running, file):
    session = running(switch_file=str(file))
    for _ in by_step(session, file, steps=3, off=range(9, 9)):
        pass
    model, other = network(), nn.Linear(2, 2)
    loss = model(batch()).square().sum()
    before = session.figures.compressed
    file.touch()
    other(torch.zeros(1, 2)).sum().backward()
    sgd(other).step()
    assert session.figures.switched_off
    loss.backward()
    assert session.figures.compressed > before
    assert all(weight.grad is not None for weight in model.parameters())


def test_a_file_that_is_there_before_the_first_step_counts_too(running, file):
    file.touch()
    session = running(switch_file=str(file))
    counted = [row[2] for row in by_step(session, file, off=range(2))]
    assert counted == [1, 2, *[2] * (STEPS - 2)]


def test_summary_and_report_say_so(running, file, tmp_path):
    config = RuntimeConfig("ErrorBounded", min_tensor_bytes=0, switch_file=str(file))
    session = running(switch_file=str(file))
    states = []
    for _ in by_step(session, file):
        summary = export.merged(config, [export.report(session.figures)])
        states.append((summary["active"], summary["reason"]))
    assert states[OFF.start - 1 : OFF.stop] == [(False, "SwitchedOff")] * 3 + [(True, "Active")]
    assert "kept as it is: SwitchedOff 3" in str(Report.of(config, session.figures))


def test_the_time_of_steps_says_nothing_of_those_that_were_switched_off(running, file):
    """Of the steps that run with and without compression in turn some are neither."""
    session = running(switch_file=str(file), overhead=True)
    off = range(FIRST + 4, FIRST + 10)
    for _ in by_step(session, file, steps=FIRST + 16, off=off):
        pass
    spans = session._overhead._spans
    assert sum(len(spans[kind]) for kind in ("on", "off", "measured")) == 16 - len(off)
    assert session.figures.raw["SwitchedOff"] == len(off)


def test_a_path_that_cannot_be_looked_at_is_no_file(running, tmp_path):
    (tmp_path / "plain").touch()
    session = running(switch_file=str(tmp_path / "plain" / "off"))
    assert not session.figures.switched_off


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, None),
        ({"KOMPAKT_STATE_DIR": "/state"}, "/state/off"),
        ({"KOMPAKT_STATE_DIR": "/state", "KOMPAKT_SWITCH_FILE": "/shared/no"}, "/shared/no"),
        ({"KOMPAKT_SWITCH_FILE": "no"}, os.path.abspath("no")),
        ({"KOMPAKT_STATE_DIR": "/state", "KOMPAKT_BATCH": "Raise"}, None),
    ],
)
def test_where_the_file_is(environ, path):
    assert RuntimeConfig.from_env(environ).switch_file == path


# A process that loads torch and its optimizers takes seconds, more on a busy machine.
@pytest.mark.timeout(600)
def test_the_processes_of_a_pod_look_into_its_state_folder(pod, environ):
    (Path(environ["KOMPAKT_STATE_DIR"]) / "off").touch()
    _, words, (row,) = pod([sys.executable, str(SCRIPT), "8", "3"], KOMPAKT_MIN_TENSOR_BYTES="0")
    assert (words["active"], words["reason"], words["plainBytes"]) == (False, "SwitchedOff", 0)
    assert (row["raw"], row["steps"]) == ({"SwitchedOff": 3}, 3)


def test_kompakt_run_says_that_nothing_was_compressed_because_of_the_file(capsys):
    figures = Figures()
    figures.count_raw("SwitchedOff")
    run._show_nothing(Report.of(RuntimeConfig("ErrorBounded"), figures), 0, heard=True)
    assert "kompakt: the file that switches compression off was there; nothing was compressed" in capsys.readouterr().err
