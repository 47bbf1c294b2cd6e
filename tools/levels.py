"""The levels of tests: their folders, what each needs, and how its tests are shared out among processes."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.kube.binaries import ENV_FOLDER
from tools.kube.programs import ENV_KUBELET, ENV_KUBERNETES, NEWEST_MINOR, OLDEST_MINOR, PROGRAMS, SIMULATED

ENV_TURN = "KOMPAKT_TURN"  # as tests/support/turns.py reads it; "all" runs both halves
ROOT = Path(__file__).resolve().parent.parent
# At most eight processes, since each may load PyTorch (0.5 GB); a process that is done takes tests over from a busy one.
EVERY_CORE = ("-n", "auto", "--maxprocesses=8", "--dist=worksteal")
# Each with a control plane of its own (1 GB), which mostly waits. The tests of a file share its nodes and stay together.
TWO_CLUSTERS = ("-n", "2", "--dist=loadfile")


@dataclass(frozen=True, slots=True)
class TestLevel:
    """A test level: `obstacle` answers None when it can run here, else why not.

    `programs` are fetched or built before it begins: that can take many minutes once, longer than any test may.
    `spread` says how pytest-xdist shares its tests out among processes; none for tests that need the machine for themselves.
    """

    name: str
    obstacle: Callable[[], str | None]
    programs: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # below tests/, where the level is more than the folder of its name
    options: tuple[str, ...] = ()
    without: str = ""  # packages that are left unused although they may be installed
    older: str = ""  # the variable that names an older version of Kubernetes
    waits: bool = False  # most of its time: it leaves processors to another such level


def no_obstacle() -> str | None:
    return None


def node_obstacle() -> str | None:
    from tools.kube import elsewhere, host  # only this level needs them

    return elsewhere.obstacle() if os.environ.get("KOMPAKT_CLUSTER") else host.obstacle()


def browser_obstacle() -> str | None:
    from tools.browser import obstacle  # installs Chromium where it may

    return obstacle()


def gpu_obstacle() -> str | None:
    if not any((ROOT / "tests" / "gpu").glob("test_*.py")):
        return "there are no GPU tests yet"
    return None if shutil.which("nvidia-smi") else "this machine has no NVIDIA driver (nvidia-smi is not on PATH)"


def one_version_obstacle() -> str | None:
    return f"{ENV_FOLDER} names the programs of one version" if os.environ.get(ENV_FOLDER) else None


def commits() -> int:
    """Of the history of this checkout; 0 where there is none."""
    done = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout or 0)


def in_turn(number: int) -> str:
    """The older version of Kubernetes whose turn it is: the same for everybody who tests a commit."""
    return f"1.{OLDEST_MINOR + number % (NEWEST_MINOR - OLDEST_MINOR)}"


def turn() -> str:
    """Which half of the long tests runs: by the commit's name, so the same for everybody who tests it."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return str(int(done.stdout[:8] or "0", 16) % 2) if done.returncode == 0 else "0"


def environment(level: TestLevel) -> dict[str, str]:
    """One thread a process for PyTorch where there is a process on each core already: more only wait for each other."""
    threads = {"OMP_NUM_THREADS": "1"} if level.spread else {}
    older = {level.older: in_turn(commits())} if level.older and not one_version_obstacle() else {}
    return older | {ENV_TURN: turn()} | os.environ | threads | ({"KOMPAKT_WITHOUT": level.without} if level.without else {})


OLDER_TESTS = tuple(f"cluster/test_{name}.py" for name in ("definitions", "control_plane", "path", "admission", "operator"))
LEVELS = [
    TestLevel("unit", no_obstacle, spread=EVERY_CORE),
    TestLevel("contract", no_obstacle, ("helm",), spread=EVERY_CORE),
    TestLevel("browser", browser_obstacle),
    TestLevel("gpu", gpu_obstacle),
    TestLevel(
        "versions",
        one_version_obstacle,
        (*SIMULATED, "helm", "kubelet"),
        spread=TWO_CLUSTERS,
        folders=OLDER_TESTS,
        older=ENV_KUBERNETES,
    ),
    TestLevel("cluster", no_obstacle, (*SIMULATED, "helm", "oras", "registry"), spread=TWO_CLUSTERS, waits=True),
    TestLevel("node", node_obstacle, tuple(name for name, one in PROGRAMS.items() if not one.cgo), waits=True, older=ENV_KUBELET),
]
FAST = TestLevel(
    "fast",
    no_obstacle,
    ("helm",),
    spread=EVERY_CORE,
    folders=("unit", "contract"),
    options=("--ignore=tests/unit/runtime",),
    without="torch",
)
