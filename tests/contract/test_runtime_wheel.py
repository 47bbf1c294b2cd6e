"""The runtime as a package of its own: built, installed beside nothing else, and a script trained by its console script."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.needs import needs

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "support" / "runtime" / "train.py"
UV = Path(sys.executable).parent / "uv"
# Torch's folder comes behind the start-up hook's, for the program alone: the command does not see what lies in it.
WITH_TORCH = 'PYTHONPATH="$PYTHONPATH:$1" && export PYTHONPATH && shift && exec "$@"'


def must(*command: object, folder: Path = ROOT) -> str:
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the sdist, as a package index builds it: all that it needs must be in there."""
    folder = tmp_path_factory.mktemp("built")
    must(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, folder=ROOT / "runtime")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    must(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=source)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def alone(wheel, tmp_path_factory) -> Path:
    """An environment that has the wheel and nothing else: no index is asked."""
    folder = tmp_path_factory.mktemp("alone") / "env"
    must(UV, "venv", "--quiet", "--python", sys.executable, folder)
    must(UV, "pip", "install", "--quiet", "--no-index", "--python", folder / "bin/python", wheel)
    return folder


def of_package(alone: Path) -> importlib.metadata.Distribution:
    (found,) = importlib.metadata.distributions(path=[str(next(alone.glob("lib/*/site-packages")))])
    return found


def test_the_wheel_needs_nothing_and_pins_nothing(alone):
    package = of_package(alone)
    assert package.name == "kompakt-runtime"
    extras = [line for line in package.requires or () if "extra ==" in line]
    assert extras == (package.requires or [])
    assert {"torch", "triton"} <= {line.split(">")[0] for line in extras}
    assert all(">=" in line.partition(";")[0] for line in extras)
    assert not any(sign in line.partition(";")[0] for line in extras for sign in ("==", "<", "~", "!"))


def test_its_command_and_its_parts_without_torch_work_there(alone):
    assert must(alone / "bin/kompakt-run", "--help").startswith("usage: kompakt-run [options] -- PROGRAM")
    parts = "import kompakt_runtime.config, kompakt_runtime.report.text, kompakt_runtime.figures.export, kompakt_runtime.start"
    must(alone / "bin/python", "-I", "-c", parts)


def test_help_loads_neither_figures_nor_processes(alone):
    """What costs processor time before a line is read."""
    program = "import sys\nfrom kompakt_runtime.launch.kompakt_run import parser\nparser()\nprint(*sys.modules)"
    loaded = set(must(alone / "bin/python", "-I", "-c", program).split())
    assert loaded & {"kompakt_runtime.launch.run", "kompakt_runtime.report.text", "subprocess", "asyncio", "torch"} == set()


# A process that loads torch and its optimizers takes seconds, more on a busy machine.
@pytest.mark.timeout(600)
def test_a_script_is_trained_by_it(alone):
    needs("torch")
    spec = importlib.util.find_spec("torch")
    beside = Path(spec.origin).parents[1]
    command = [alone / "bin/kompakt-run", "--min-tensor-bytes", "0", "--verify", "--"]
    program = ["sh", "-c", WITH_TORCH, "sh", beside, alone / "bin/python", SCRIPT, "8", "3"]
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in (*command, *program)], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["step 0 []", "step 1 []", "step 2 []", "saved a model"]
    assert "kompakt: activations held at most " in done.stderr
    assert "times smaller" in done.stderr
    assert ", 0 beyond what was promised" in done.stderr
