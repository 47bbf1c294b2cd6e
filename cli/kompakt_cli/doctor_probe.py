"""What `kompakt doctor` reads of this machine: it runs the Python that trains, with the start-up hook, and asks the driver."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.errors import InvalidInput

PROBE: Final = Path(__file__).parent / "data" / "machine_probe.py"
PAYLOAD: Final = "kompakt.payload"  # entry-point group: a context with the folder that has the start-up hook
MODE: Final = "ErrorBounded"  # the default of `kompakt run`
SECONDS: Final = 180  # the first import of torch from a cold disk, and Triton's first kernels
DRIVER: Final = ("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader")
SHM: Final = "/dev/shm"
COMPILERS: Final = ("gcc", "clang", "cc")  # as Triton looks for one, after CC
OFF: Final = "KOMPAKT_OFF"


@dataclass(frozen=True, slots=True)
class MachineReading:
    """`python`: what the probe printed; `said`: the runtime's own lines; `driver`: a line for each GPU."""

    program: str
    python: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""
    said: tuple[str, ...] = ()
    hook: bool = True
    off: str = ""
    driver: tuple[str, ...] = ()
    no_driver: str = ""
    compiler: str = ""
    shm_bytes: int | None = None


def read(python: str | None) -> MachineReading:
    """All of it. Raises InvalidInput where there is no such program."""
    program = _program(python)
    driver, no_driver = _driver()
    with _hook() as settings:
        found, said, failed = _probed(program, settings or {})
    return MachineReading(
        program,
        found,
        failed,
        said,
        hook=settings is not None,
        off=os.environ.get(OFF, ""),
        driver=driver,
        no_driver=no_driver,
        compiler=_compiler(),
        shm_bytes=_size(SHM),
    )


def _program(python: str | None) -> str:
    """`kompakt run -- python train.py` starts the python of the PATH."""
    if python is None:
        return shutil.which("python") or sys.executable
    found = shutil.which(python)
    if found is None:
        raise InvalidInput(f"--python: there is no program {python}; name the Python that trains, such as venv/bin/python")
    return found


@contextmanager
def _hook() -> Iterator[dict[str, str] | None]:
    """Settings as `kompakt run` makes them; None where the runtime is not installed here."""
    entry = next(iter(entry_points(group=PAYLOAD)), None)
    if entry is None:
        yield None
        return
    with entry.load()() as folder:
        path = [str(folder / "bootstrap"), *filter(None, [os.environ.get("PYTHONPATH")])]
        yield {
            "PYTHONPATH": os.pathsep.join(path),
            contract.ENV_MODE: MODE,
            contract.ENV_STATE_DIR: str(folder),
            contract.ENV_TERMINATION_LOG: str(folder / "termination-log"),
        }


def _probed(program: str, settings: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...], str]:
    """What the probe printed, what the runtime said, and why there is nothing."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KOMPAKT_") or name == OFF}
    try:
        done = subprocess.run(
            [program, str(PROBE)], env={**clean, **settings}, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, (), str(error)
    said = tuple(line for line in done.stderr.splitlines() if line.startswith("kompakt: "))
    try:
        return dict(json.loads(done.stdout.splitlines()[-1])), said, ""
    except (ValueError, IndexError, TypeError):
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return {}, said, f"ended with code {done.returncode}: {last[:300]}"


def _driver() -> tuple[tuple[str, ...], str]:
    """A line for each GPU, or why there is none."""
    if shutil.which(DRIVER[0]) is None:
        return (), "there is no program nvidia-smi"
    try:
        done = subprocess.run(DRIVER, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), str(error)
    lines = tuple(line.strip() for line in done.stdout.splitlines() if line.strip())
    return (lines, "") if done.returncode == 0 and lines else ((), (done.stdout + done.stderr).strip()[:300] or "no GPU")


def _compiler() -> str:
    asked = os.environ.get("CC", "")
    return next((found for name in (asked, *COMPILERS) if name and (found := shutil.which(name))), "")


def _size(folder: str) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None
