"""A training program with compression as a process of its own, and what is said about it when it has ended.

For `kompakt run` and `kompakt-run` alike. No torch here, nor anything else beside the standard library but rich, if it is there.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kompakt_runtime import config
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import SWITCHED_OFF
from kompakt_runtime.launch import options
from kompakt_runtime.report.text import Report

PACKAGE: Final = Path(__file__).resolve().parents[1]
ATTEMPT: Final = "1"
EXIT_VIOLATIONS: Final = 3
FIXED: Final = {config.ENV_FAILURE_POLICY: "Fail", config.ENV_ATTEMPT: ATTEMPT}


class BadCommand(ValueError):
    """An option's value or a program that cannot be right; the message names the option as people type it."""


def run(program: Sequence[str], values: Mapping[str, Any]) -> int:
    """Run the program and show what was saved. The exit code is the program's, or what its figures make of a 0.

    values: of options, by their keys. Raises BadCommand before anything runs.
    """
    settings = {**FIXED, **options.settings(values)}
    configured = _configured(settings)
    if not program:
        raise BadCommand("name the program to run, after `--`")
    if shutil.which(program[0]) is None:
        raise BadCommand(f"there is no program {program[0]}")
    if configured.compare and configured.mode == "None":
        raise BadCommand("--compare needs a mode other than None: without compression there is nothing to compare")
    with payload() as folder:
        settings |= _places(folder) | _comparing(folder, configured.compare)
        if configured.compare and (code := _run_plainly(program, settings, folder)):
            return code
        code = _run(program, settings)
        report = Report.of_rows(configured, export.read_reports(str(folder), int(ATTEMPT)))
    _show(report)
    return code or (EXIT_VIOLATIONS if configured.verify and report.violations else 0)


def _configured(settings: Mapping[str, str]) -> config.RuntimeConfig:
    try:
        return config.RuntimeConfig.from_env(settings)
    except config.ConfigError as error:
        raise BadCommand(options.as_typed(str(error))) from error


@contextmanager
def payload() -> Iterator[Path]:
    """A folder as the init container makes it in a pod: start-up hook and package side by side; files of figures come in too."""
    beside = PACKAGE.parent / "bootstrap"
    with tempfile.TemporaryDirectory(prefix="kompakt-") as name:
        folder = Path(name)
        (folder / "bootstrap").symlink_to(beside if beside.is_dir() else PACKAGE / "bootstrap")
        (folder / "kompakt_runtime").symlink_to(PACKAGE)
        yield folder


def _places(folder: Path) -> dict[str, str]:
    path = [str(folder / "bootstrap"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        config.ENV_STATE_DIR: str(folder),
        config.ENV_TERMINATION_LOG: str(folder / "termination-log"),
    }


def _comparing(folder: Path, steps: int) -> dict[str, str]:
    """Sets in Python are in an order that hangs on its seed."""
    if not steps:
        return {}
    seed = os.environ.get("PYTHONHASHSEED", "0")
    return {config.ENV_COMPARE_DIR: str(folder / "plain"), "PYTHONHASHSEED": seed}


def _run_plainly(program: Sequence[str], settings: Mapping[str, str], folder: Path) -> int:
    """The first of two runs, whose figures are not shown; its exit code."""
    steps = settings[config.ENV_COMPARE]
    _tell(f"run 1 of 2, without compression: ends after {steps} optimizer steps, whose gradients are kept to compare with")
    (folder / "plain").mkdir()
    plain = {config.ENV_MODE: "None", config.ENV_OFFLOAD: "Never", config.ENV_BATCH: "Keep"}
    plain |= {config.ENV_ACTIVATION_GRADIENTS: "", config.ENV_NONLINEAR: ""}
    code = _run(program, {**settings, **plain, config.ENV_STATE_DIR: str(folder / "plain")})
    _tell(f"the plain run ended with code {code}, so there is nothing to compare" if code else "run 2 of 2, with compression")
    return code


def _tell(sentence: str) -> None:
    print(f"kompakt: {sentence}", file=sys.stderr, flush=True)


def _run(program: Sequence[str], settings: Mapping[str, str]) -> int:
    """Its exit code, 128 + the signal's number if one ended it. A terminal's Ctrl-C reaches the program by itself."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def hand_on(number: int, frame: Any) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    # Before there is a program: a signal that comes while it starts would leave it behind alone.
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on)}
    child = subprocess.Popen(program, env={**os.environ, **settings})
    for number in early:
        child.send_signal(number)
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # not earlier: programs inherit what is ignored
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _show(report: Report) -> None:
    if not report.forwards:
        _tell(f"{_why_nothing(report)}; nothing was compressed")
        for note in report.notes():
            _tell(note)
        return
    try:
        from rich.console import Console
    except ImportError:
        _tell(str(report))
    else:
        _tell(report.headline())
        console = Console(stderr=True)
        console.print(report.table(), soft_wrap=True)
        if report.comparison is not None:
            console.print(report.comparison.table(), soft_wrap=True)


def _why_nothing(report: Report) -> str:
    if config.switched_off(os.environ):
        return f"{config.ENV_OFF}={os.environ[config.ENV_OFF]} switches compression off, so it was not active"
    if report.mode == "None":
        return "mode None, so compression was not active"
    if SWITCHED_OFF in report.raw:
        return "the file that switches compression off was there"
    return "no forward pass of a module in training mode was seen"
