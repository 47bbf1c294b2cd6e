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
NOTHING: Final = "nothing was compressed"
SIGNALLED: Final = 128  # an exit code above it tells the number of the signal that ended a program
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
    if configured.dry_run and configured.batch == "Suggest":
        raise BadCommand("--suggest-batch takes three optimizer steps, and --dry-run ends after two; leave one of them out")
    if configured.compare and configured.mode == "None":
        raise BadCommand("--compare needs a mode other than None: without compression there is nothing to compare")
    with payload() as folder:
        settings |= _places(folder) | _comparing(folder, configured.compare)
        if configured.compare and (code := _run_plainly(program, settings, folder)):
            return code
        code = _run(program, settings)
        rows = export.read_reports(str(folder), int(ATTEMPT))
    report = Report.of_rows(configured, rows)
    if report.forwards:
        _show(report, configured.all_rows)
    else:
        _show_nothing(report, code, heard=bool(rows))
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
    plain = {config.ENV_MODE: "None", config.ENV_OFFLOAD: "Never", config.ENV_BATCH: "Keep", config.ENV_MEMORY_BUDGET: ""}
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
    return code if code >= 0 else SIGNALLED - code


def _show(report: Report, everything: bool) -> None:
    """A table on a terminal; elsewhere, and without rich, lines that are whole however long they are."""
    try:
        from rich.console import Console
    except ImportError:
        return _tell("\n".join(report.lines(everything)))
    console = Console(stderr=True)
    if not console.is_terminal:
        return _tell("\n".join(report.lines(everything)))
    _tell(report.headline())
    console.print(report.table(everything), soft_wrap=True)
    if report.comparison is not None:
        console.print(report.comparison.table(), soft_wrap=True)
    return None


def _show_nothing(report: Report, code: int, heard: bool) -> None:
    _tell(_why_nothing(report, code, heard))
    for note in report.notes():
        _tell(note)


def _why_nothing(report: Report, code: int, heard: bool) -> str:
    """heard: whether any process left figures, as each does after its first optimizer step and at its end."""
    if config.switched_off(os.environ):
        return f"{config.ENV_OFF}={os.environ[config.ENV_OFF]} switches compression off, so it was not active; {NOTHING}"
    if report.mode == "None":
        return f"mode None, so compression was not active; {NOTHING}"
    if SWITCHED_OFF in report.raw:
        return f"the file that switches compression off was there; {NOTHING}"
    if code > SIGNALLED and not heard:
        signalled = f"the program was ended by signal {code - SIGNALLED}"
        return f"{signalled} before its first optimizer step was over; figures are written only after that"
    ended = f" before the program ended with code {code}" if code else ""
    return f"no forward pass of a module in training mode was seen{ended}; {NOTHING}"
