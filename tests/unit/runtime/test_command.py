"""`kompakt run`: a training program as a process of its own, its exit code, and what is said about it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from kompakt_runtime.launch.command import run

SCRIPT = Path(__file__).parents[2] / "support" / "runtime" / "train.py"


def kompakt_run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = Path(sys.executable).parent / "kompakt"
    environ = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run([command, "run", *words], capture_output=True, text=True, env=environ)


# A process that loads torch and its optimizers takes seconds, more on a busy machine: one run shows many things.
@pytest.mark.timeout(900)
def test_a_script_runs_compressed_is_verified_and_ends_after_the_second_step():
    options = ("--dry-run", "--verify", "--min-tensor-bytes", "0", "--offload", "Auto")
    done = kompakt_run(*options, "--", sys.executable, str(SCRIPT), "8", "6", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["step 0 ['--epochs', '3']", "saved a model"]
    assert done.stderr.count("2 optimizer steps") == 1
    assert "times smaller" in done.stderr
    assert ", 0 beyond what was promised" in done.stderr
    if not torch.cuda.device_count():
        assert "offload Auto: NoGpu, nothing leaves memory" in done.stderr
        assert "stayed on the device: NoGpu" in done.stderr


@pytest.mark.timeout(900)
def test_a_script_is_held_to_a_budget_and_the_report_says_what_that_took():
    """A share of the machine's memory that a process with torch in it has filled already."""
    words = ("--memory-budget", "0.1%", "--min-tensor-bytes", "0", "--", sys.executable, str(SCRIPT), "8", "6")
    done = kompakt_run(*words)
    assert done.returncode == 0, done.stderr
    assert "memory budget 0.1% (" in done.stderr
    assert "not reached: with all that may be packed a step takes" in done.stderr


def test_the_exit_code_is_the_program_s():
    done = kompakt_run("--", "sh", "-c", 'echo "$KOMPAKT_MODE $KOMPAKT_FAILURE_POLICY"; exit 5')
    assert (done.returncode, done.stdout) == (5, "ErrorBounded Fail\n")
    assert "no forward pass" in done.stderr


def test_the_summary_says_that_compression_was_switched_off(monkeypatch):
    assert "kompakt: mode None, so compression was not active; nothing" in kompakt_run("--mode", "None", "--", "true").stderr
    monkeypatch.setenv("KOMPAKT_OFF", "0")
    assert "kompakt: no forward pass" in kompakt_run("--", "true").stderr
    monkeypatch.setenv("KOMPAKT_OFF", "yes")
    done = kompakt_run("--", "true")
    assert done.stderr == "kompakt: KOMPAKT_OFF=yes switches compression off, so it was not active; nothing was compressed\n"


def test_a_program_that_a_signal_ended_has_the_code_that_shells_give_it():
    assert kompakt_run("--", "sh", "-c", "kill -9 $$").returncode == 128 + 9


def test_options_reach_the_program_and_its_own_path_stays(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    done = kompakt_run("--suggest-batch", "--replay", "--", "sh", "-c", 'echo "$KOMPAKT_BATCH $KOMPAKT_REPLAY $PYTHONPATH"')
    batch, replay, path = done.stdout.split()
    assert (batch, replay, path.split(":")[1:]) == ("Suggest", "1", ["/of/the/user"])


def test_a_signal_to_end_is_handed_on_to_the_program():
    command = [Path(sys.executable).parent / "kompakt", "run", "--", "sh", "-c", "trap 'exit 9' TERM; echo up; read never"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait() == 9
        process.communicate()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--mode", "Some"), "--mode is 'Some'; it must be one of"),
        (("--target", "3"), "--target is '3'; it must be a number above 0 and at most 0.1"),
        (("--overrides", "head"), "--overrides is no JSON"),
        (("--overrides", '[{"modules": "", "mode": "None"}]'), "--overrides[0].modules must be a name pattern"),
        (("--min-tensor-bytes", "-1"), "--min-tensor-bytes is '-1'; it must be a whole number"),
        (("--activation-gradients", "Some"), "--activation-gradients is 'Some'"),
        (("--nonlinear-inputs", "Some"), "--nonlinear-inputs is 'Some'"),
        (
            ("--nonlinear-inputs", "Keep", "--activation-gradients", "Bounded"),
            "--nonlinear-inputs is 'Keep', which now is --activation-gradients Exact, but --activation-gradients is 'Bounded'",
        ),
        (
            ("--mode", "Lossless", "--activation-gradients", "Bounded"),
            "--activation-gradients is 'Bounded'; that needs mode ErrorBounded",
        ),
        (
            ("--mode", "Lossless", "--nonlinear-inputs", "Bounded"),
            "--nonlinear-inputs is 'Bounded'; that needs mode ErrorBounded",
        ),
        (("--offload", "Some"), "--offload is 'Some'"),
        (("--memory-budget", "20GB"), "--memory-budget is '20GB'; right is an amount above 0 such as 20Gi or 512Mi"),
        (("--mode", "Lossless", "--memory-budget", "1Gi"), "--memory-budget is '1Gi'; that needs mode ErrorBounded"),
        (("--mode", "None", "--offload", "Auto"), "--offload is 'Auto'; that needs a mode other than None"),
    ],
)
def test_a_wrong_option_is_refused_by_its_own_name_before_anything_runs(words, sentence):
    application = typer.Typer(add_completion=False)
    application.command()(run)
    done = CliRunner().invoke(application, [*words, "--", "no-such-program-here"], env={"TERMINAL_WIDTH": "300"})
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "KOMPAKT_" not in done.stderr


def test_what_cannot_be_run_is_refused_with_a_sentence():
    done = kompakt_run("--", "no-such-program-here")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no program no-such-program-here" in done.stderr
