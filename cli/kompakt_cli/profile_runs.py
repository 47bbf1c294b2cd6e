"""Measured runs of a training script: started with torchrun, timed by the start-up hook, judged by the files of its ranks."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from kompakt_cli.profile_document import told_run
from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.profile.document import ProfiledRun, slowest

PAYLOAD: Final = "kompakt.payload"  # entry-point group: a context with the folder that has the start-up hook
GRACE_S: Final = 15.0  # for a run to end once all ranks have written their figures
LAST_LINES: Final = 15
TORCHRUN: Final = re.compile(r"[WE]\d{4} .*torch/distributed/elastic/")
CACHE: Final = "page-cache.json"  # what the start-up hook leaves (the runtime repeats it; a contract test compares)
PROBE: Final = "import json, torch; print(json.dumps([torch.cuda.device_count(), torch.__version__]))"


@dataclass(frozen=True, slots=True)
class Script:
    """What is run: `python` with torchrun and these words (a script or `-m module`, and its arguments)."""

    python: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Machines that run together; `master` is HOST:PORT of number 0."""

    count: int = 1
    number: int = 0
    master: str = ""


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """How each run is made. `limit_s`: what one run may take in all. `paths`: the data's files and folders, if they are named."""

    script: Script
    warm_up: int
    steps: int
    limit_s: float
    nodes: Nodes = Nodes()
    paths: tuple[str, ...] = ()


def read_script(program: Sequence[str]) -> Script:
    """`python [-u] train.py ...` or `python -m module ...`. Raises InvalidInput for anything else."""
    right = "give it as you would run it on one device: python train.py [arguments]; profile starts it on several by itself"
    name = Path(program[0]).name
    if not name.startswith("python"):
        raise InvalidInput(f"{program[0]} is no Python; {right}")
    if shutil.which(program[0]) is None:
        raise InvalidInput(f"there is no program {program[0]}")
    words = list(program[1:])
    while words[:1] == ["-u"]:
        words = words[1:]
    if not words or (words[0].startswith("-") and (words[0] != "-m" or len(words) < 2)):
        raise InvalidInput(f"{' '.join(program)[:80]}: no script; {right}")
    if words[:2] == ["-m", "torch.distributed.run"]:
        raise InvalidInput(f"torch.distributed.run starts on several devices itself; {right}")
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise InvalidInput(f"there is no script {words[0]}")
    return Script(program[0], tuple(words))


def gpus_of(script: Script) -> int:
    """How many GPUs this Python's torch sees. Raises InvalidInput where it has no torch."""
    done = subprocess.run([script.python, "-c", PROBE], capture_output=True, text=True, check=False)
    with suppress(ValueError, IndexError):
        return int(json.loads(done.stdout.splitlines()[-1])[0])
    last = (done.stderr.strip().splitlines() or ["no word"])[-1]
    raise InvalidInput(f"{script.python} cannot import torch ({last}); profile needs the Python that the training runs with")


def measure(plan: ProfilePlan, name: str, data: str, devices: int) -> tuple[ProfiledRun, object]:
    """Run the script once on so many devices with `data`: synthetic, real, or cold or warm (the plan's paths).

    With the run comes the share of these paths' files that was in the page cache at its beginning, None = not known. Raises
    InvalidInput that says what went wrong.
    """
    with _payload() as payload, tempfile.TemporaryDirectory(prefix="kompakt-profile-") as folder:
        log = Path(folder) / "output.txt"
        with log.open("wb") as output:
            code = _watched(plan, _environment(plan, payload, folder, data), output, Path(folder), devices, name)
        rows = _rows(Path(folder))
        complete = [row for row in rows if row.get("complete")]
        if len(complete) < devices:
            raise InvalidInput(_why(plan, name, rows, len(complete), devices, code, log))
        cached = json.loads((Path(folder) / CACHE).read_text()) if data in ("cold", "warm") else None
    return slowest([told_run(row, f"run {name}") for row in complete]), cached


@contextmanager
def _payload() -> Iterator[Path]:
    found = next(iter(entry_points(group=PAYLOAD)), None)
    if found is None:
        raise InvalidInput("the package kompakt-runtime is not installed here; profile needs its start-up hook")
    with found.load()() as folder:
        yield folder


def _environment(plan: ProfilePlan, payload: Path, folder: str, data: str) -> dict[str, str]:
    path = [str(payload / "bootstrap"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "OMP_NUM_THREADS": "1",  # what torchrun sets for several processes, for one as well, or the two could not be compared
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        contract.ENV_PROFILE: f"{data},{plan.warm_up},{plan.steps}",
        contract.ENV_PROFILE_DATA: json.dumps(plan.paths),
        contract.ENV_STATE_DIR: folder,
        contract.ENV_MODE: "None",
        contract.ENV_FAILURE_POLICY: "Fail",
    }


def command(plan: ProfilePlan, devices: int) -> list[str]:
    """The torchrun command of one machine."""
    nodes = plan.nodes
    words = [plan.script.python, "-m", "torch.distributed.run", f"--nproc-per-node={devices}"]
    if nodes.count == 1:
        words.append("--standalone")
    else:
        host, _, port = nodes.master.rpartition(":")
        words += [f"--nnodes={nodes.count}", f"--node-rank={nodes.number}", f"--master-addr={host}", f"--master-port={port}"]
    return [*words, *plan.script.words]


def _watched(plan: ProfilePlan, environ: Mapping[str, str], output: Any, folder: Path, devices: int, name: str) -> int:
    """The run's exit code; it is ended when its time is over, or some time after all ranks have told their figures."""
    child = subprocess.Popen(
        command(plan, devices), env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    until = time.monotonic() + plan.limit_s
    told = False
    try:
        while (code := child.poll()) is None:
            if not told and sum(bool(row.get("complete")) for row in _rows(folder)) >= devices:
                told, until = True, time.monotonic() + GRACE_S
            if time.monotonic() > until:
                if told:
                    return 0
                raise InvalidInput(f"run {name}: no end after {plan.limit_s:g} s; give fewer --steps or a longer --timeout")
            time.sleep(0.1)
        return code
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("profile-*.json"))]


def said_by_script(log: str) -> list[str]:
    """The lines of a run's output before torchrun's own words about a failure; all of them where it has none."""
    lines = log.splitlines()
    return list(itertools.takewhile(lambda line: not TORCHRUN.match(line), lines)) or lines


def _why(
    plan: ProfilePlan, name: str, rows: Sequence[Mapping[str, Any]], complete: int, devices: int, code: int, log: Path
) -> str:
    needed = plan.warm_up + plan.steps
    steps = max((row.get("steps", 0) for row in rows), default=0)
    last = "".join(f"\n  | {line}" for line in said_by_script(log.read_text(errors="replace"))[-LAST_LINES:])
    if complete:
        return f"run {name}: only {complete} of {devices} processes took {needed} steps; all must step alike{last}"
    if code:
        return f"run {name}: the script failed after {steps} optimizer steps{last}"
    if steps:
        return (
            f"run {name}: the script ended after {steps} optimizer steps; {needed} are needed "
            f"(--warm-up {plan.warm_up} and --steps {plan.steps}): let it train longer or give fewer"
        )
    return f"run {name}: the script ended without a step of an optimizer of torch.optim, so there is nothing to time{last}"
