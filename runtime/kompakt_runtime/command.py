"""`kompakt run -- python train.py`: a training script with compression, without a cluster and without a change."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kompakt_runtime import config, export
from kompakt_runtime.report import Report

PACKAGE: Final = Path(__file__).resolve().parent
ATTEMPT: Final = "1"
EXIT_VIOLATIONS: Final = 3
OPTIONS: Final = {
    config.ENV_MODE: "--mode",
    config.ENV_TARGET: "--target",
    config.ENV_OVERRIDES: "--overrides",
    config.ENV_MIN_TENSOR_BYTES: "--min-tensor-bytes",
    config.ENV_NONLINEAR: "--nonlinear-inputs",
    config.ENV_OFFLOAD: "--offload",
}


def run(
    program: Annotated[list[str], typer.Argument(help="what to run, after `--`", metavar="-- PROGRAM [ARGUMENTS]")],
    mode: Annotated[str, typer.Option(help=f"one of {', '.join(config.MODES)}")] = "ErrorBounded",
    target: Annotated[
        str, typer.Option(help="error of weight gradients as a share of the mean |momentum|")
    ] = config.DEFAULT_TARGET,
    overrides: Annotated[str, typer.Option(help='JSON, as [{"modules": "head.*", "mode": "None"}]')] = "[]",
    min_tensor_bytes: Annotated[int, typer.Option(help="smaller tensors stay as they are")] = config.DEFAULT_MIN_TENSOR_BYTES,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="end after the second step, show what it saved")] = False,
    suggest_batch: Annotated[bool, typer.Option("--suggest-batch", help="say how large a batch would fit into memory")] = False,
    replay: Annotated[bool, typer.Option("--replay", help="draw dropout's masks again instead of keeping them (CPUs)")] = False,
    nonlinear_inputs: Annotated[
        str, typer.Option(help=f"of norms, GELU, SiLU and attention: one of {', '.join(config.NONLINEAR)}")
    ] = "Keep",
    offload: Annotated[
        str, typer.Option(help=f"let what is kept wait in pinned host memory (GPUs): one of {', '.join(config.OFFLOAD)}")
    ] = "Never",
    verify: Annotated[bool, typer.Option("--verify", help="keep originals too and compare every copy that is read")] = False,
) -> None:
    """Run a training program with compressed activations and show what was saved, by layer.

    The exit code is the program's; 3 if it was 0 and --verify found a difference that was not allowed.
    """
    settings = {
        config.ENV_MODE: mode,
        config.ENV_TARGET: target,
        config.ENV_OVERRIDES: overrides,
        config.ENV_MIN_TENSOR_BYTES: str(min_tensor_bytes),
        config.ENV_NONLINEAR: nonlinear_inputs,
        config.ENV_OFFLOAD: offload,
        config.ENV_FAILURE_POLICY: "Fail",
        config.ENV_BATCH: "Suggest" if suggest_batch else "Keep",
        config.ENV_ATTEMPT: ATTEMPT,
        config.ENV_VERIFY: str(int(verify)),
        config.ENV_REPLAY: str(int(replay)),
        config.ENV_DRY_RUN: str(int(dry_run)),
    }
    try:
        configured = config.RuntimeConfig.from_env(settings)
    except config.ConfigError as error:
        raise typer.BadParameter(_as_typed(str(error))) from error
    if shutil.which(program[0]) is None:
        raise typer.BadParameter(f"there is no program {program[0]}")
    with payload() as folder:
        code = _run(program, {**settings, **_places(folder)})
        report = Report.of_rows(configured, export.read_reports(str(folder), int(ATTEMPT)))
    _show(report)
    raise typer.Exit(code or (EXIT_VIOLATIONS if verify and report.violations else 0))


def _as_typed(message: str) -> str:
    """With the option that people typed instead of the variable that the message begins with."""
    for variable, option in OPTIONS.items():
        if message.startswith(variable):
            return option + message.removeprefix(variable)
    return message


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


def _run(program: list[str], settings: Mapping[str, str]) -> int:
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
        print(f"kompakt: {_why_nothing(report.mode)}; nothing was compressed", file=sys.stderr)
        for note in report.notes():
            print(f"kompakt: {note}", file=sys.stderr)
        return
    try:
        from rich.console import Console
    except ImportError:
        print(f"kompakt: {report}", file=sys.stderr)
    else:
        Console(stderr=True).print(report.table(), soft_wrap=True)


def _why_nothing(mode: str) -> str:
    if config.switched_off(os.environ):
        return f"{config.ENV_OFF}={os.environ[config.ENV_OFF]} switches compression off, so it was not active"
    if mode == "None":
        return "mode None, so compression was not active"
    return "no forward pass of a module in training mode was seen"
