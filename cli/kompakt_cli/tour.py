"""`kompakt tour`: what kompakt does, in a minute and on this machine alone. Each step is a command that users can go on with."""

import os
import shutil
import subprocess
import sys
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from kompakt_cli.commands import GROUP
from kompakt_cli.tour_page import StepShown, page
from kompakt_core.errors import InvalidInput
from kompakt_core.topology.describe import read_description

DATA: Final = Path(__file__).parent / "data"
CHECKOUT: Final = Path(__file__).parents[2] / "Makefile"  # there is one where this runs from a checkout
DEFAULT_MACHINE: Final = "dgx1-v100"
POLICIES: Final = "fifo,las,tiresias,gandiva,kompakt"
COLUMNS: Final = "110"  # what a table of policies needs


@dataclass(frozen=True, slots=True)
class TourStep:
    """A command with what it shows.

    `instead`: why it cannot run here, with the remedy; `before`: commands that run first; `also`: one whose output is a picture
    for the page; `most_lines`: how much of each output the terminal shows, the page has all of it.
    """

    title: str
    command: Sequence[str]
    says: str
    go_on: str
    instead: str = ""
    before: Sequence[Sequence[str]] = ()
    also: Sequence[str] = ()
    most_lines: int = 40


Folder = Annotated[Path, typer.Option("--out", help="folder for the page and its parts")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser, where there is one")]


def tour(out: Folder = Path("kompakt-tour"), open: Open = True) -> None:
    """Show in a minute what kompakt does, without cluster and GPU: place GPUs, schedule recorded jobs, train with less memory.

    Exit code 0; 1 where a step failed.
    """
    began, console = time.monotonic(), Console(highlight=False)
    _made(out)
    shown = [_walked(number, step, console) for number, step in enumerate(steps(out), 1)]
    path = (out / "index.html").resolve()
    path.write_text(page(shown, out))
    console.print(f"\nAll of it with pictures: {path}   ({time.monotonic() - began:.0f} s)", soft_wrap=True, markup=False)
    if open and sys.stdout.isatty() and _has_display():
        webbrowser.open(path.as_uri())
    if any(one.failed for one in shown):
        raise typer.Exit(1)


def _made(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "index.html").open("a").close()
        (out / "simulation.html").unlink(missing_ok=True)  # of an earlier tour
    except OSError as error:
        raise InvalidInput(f"--out {out}: cannot be written: {error.strerror}; name a folder you may write to") from None


def steps(out: Path) -> list[TourStep]:
    """All three, as far as this machine and the installed packages allow."""
    return [_placing(out), _scheduling(out), _training()]


def _placing(out: Path) -> TourStep:
    matrix = own_matrix()
    if matrix is not None:
        (out / "topology.txt").write_text(matrix)
    where = ["--matrix", str(out / "topology.txt")] if matrix is not None else ["--machine", DEFAULT_MACHINE]
    gpus = min(4, read_description(matrix, "machine").size) if matrix is not None else 4
    machine = "this machine" if matrix is not None else "a DGX-1 (V100), since this machine shows no link graph of its own"
    command = ["kompakt", "place", *where, "--gpus", str(gpus)]
    return TourStep(
        f"Which {gpus} GPUs a job should get on {machine}",
        command,
        "The line 'by chance' is what GPUs picked at random would give: the mean and the worst of all sets of free GPUs.",
        f"nvidia-smi topo -m | {typed()} place --matrix - --gpus 4     ({typed()} machines lists link graphs to try)",
        also=[*command, "-o", "svg"],
    )


def own_matrix() -> str | None:
    """What `nvidia-smi topo -m` prints here, if that is the link graph of two GPUs or more."""
    if shutil.which("nvidia-smi") is None:
        return None
    try:
        found = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20, check=True).stdout
        return found if read_description(found, "machine").size > 1 else None
    except (OSError, subprocess.SubprocessError, InvalidInput):
        return None


def _scheduling(out: Path) -> TourStep:
    network = ["--network", str(DATA / "network.json")]
    jobs = ["--trace", "philly-ee9e8c", "--cluster", "4x8x8", "--policy", POLICIES]
    return TourStep(
        "1,053 jobs that ran at Microsoft in 2017, on 256 GPUs, under five policies",
        ["kompakt", "simulate", *jobs, *network, "--html", str(out / "simulation.html")],
        "avg JCT is the mean time from submission to completion. What communication costs is assumed, as the file of --network "
        "says, and the constants of the policy kompakt were chosen with this trace in sight.",
        f"{typed()} simulate --trace muri-cluster --cluster 4x4x8 {' '.join(network)} -o html > page.html     "
        f"({typed()} simulate --help)",
        instead="" if _has("simulate") else _missing("simulator"),
    )


def _training() -> TourStep:
    script = [sys.executable, str(DATA / "next_byte.py")]
    return TourStep(
        "The same training script without and with compressed activations",
        ["kompakt", "run", "--", *script],
        "The script knows nothing of kompakt. On CPUs compression makes training slower; what it saves is memory.",
        f"{typed()} run -- python YOUR_SCRIPT.py",
        instead=_no_training(),
        before=[script],
        most_lines=4,  # above the table of layers
    )


def _no_training() -> str:
    if not _has("run"):
        return _missing("runtime")
    if find_spec("torch"):
        return ""
    return f"PyTorch is not installed: {'make sync-torch' if CHECKOUT.is_file() else 'pip install torch'}"


def _missing(package: str) -> str:
    return f"kompakt-{package} is not installed; from a checkout: pip install ./{package}"


def typed() -> str:
    """How to start this command line from here: by its name, else by its path, as in a checkout whose .venv is not active."""
    if shutil.which("kompakt"):
        return "kompakt"
    beside = Path(sys.executable).with_name("kompakt")
    if not beside.is_file():
        return f"{sys.executable} -m kompakt_cli"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def _has(command: str) -> bool:
    return bool(entry_points(group=GROUP, name=command))


def _walked(number: int, step: TourStep, console: Console) -> StepShown:
    console.print(f"\n[bold]{number}. {step.title}[/bold]")
    if step.instead:
        console.print(f"Left out: {step.instead}", markup=False, soft_wrap=True)
        return StepShown(step.title, step.command, f"Left out: {step.instead}", step.says, step.go_on)
    texts = [_ran(command, step.most_lines, console) for command in (*step.before, step.command)]
    picture = _output(step.also, together=False).stdout if step.also else ""
    console.print(step.says, style="dim", markup=False)
    console.print(f"Go on:  {step.go_on}", markup=False, soft_wrap=True)
    failed = any(text is None for text in texts)
    return StepShown(step.title, step.command, "".join(text or "" for text in texts), step.says, step.go_on, picture, failed)


def _ran(command: Sequence[str], most_lines: int, console: Console) -> str | None:
    """What it printed, which is printed here as well; None where it failed."""
    console.print(f"$ {' '.join(_short(word) for word in command)}", style="cyan", markup=False, soft_wrap=True)
    found = _output(command)
    lines = found.stdout.splitlines()
    shown = lines if found.returncode else lines[:most_lines]
    typer.echo("\n".join(shown))
    if len(lines) > len(shown):
        console.print(f"... ({len(lines) - len(shown)} more lines stand in the page)", style="dim")
    if found.returncode != 0:
        console.print(f"It ended with code {found.returncode}.", markup=False)
        return None
    return found.stdout


def _short(word: str) -> str:
    """As a user would type it."""
    return {"kompakt": typed(), sys.executable: "python"}.get(word, word)


def _output(command: Sequence[str], *, together: bool = True) -> "subprocess.CompletedProcess[str]":
    """`together`: with what it says on standard error, where it belongs."""
    argv = [sys.executable, "-m", "kompakt_cli", *command[1:]] if command[0] == "kompakt" else list(command)
    errors = subprocess.STDOUT if together else subprocess.DEVNULL
    env = {**os.environ, "COLUMNS": COLUMNS}
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=errors, text=True, check=False, env=env)


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
