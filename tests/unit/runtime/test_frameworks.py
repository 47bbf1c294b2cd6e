"""The scripts of examples/frameworks, as they lie there: each as its job's rank 0 runs it, plainly and under `kompakt run`."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.examples import FRAMEWORKS, worker
from tests.support.needs import needs
from tests.support.turns import in_turn


class Promise(NamedTuple):
    """What is seen of a script, with room to spare. closeness: how far its last loss may be from that of plain training."""

    packages: tuple[str, ...]
    ratio: float
    first_to_last: float  # how often its loss falls by at least
    closeness: float


PROMISES = {
    "transformers": Promise(("transformers", "accelerate"), 4, 1.2, 0.02),
    "timm": Promise(("timm", "sklearn"), 4.5, 2.5, 0.25),
    "lightning": Promise(("lightning", "sklearn"), 5, 4, 0.6),
    "accelerate": Promise(("accelerate", "sklearn"), 4.5, 4, 0.25),
    "fsdp2": Promise(("torch",), 4, 1.05, 0.02),
}
TURN_OF = {"timm": 1, "fsdp2": 0, "accelerate": 1, "lightning": 0, "transformers": 1}
WRITTEN = {path.stem.removeprefix("train_") for path in FRAMEWORKS.glob("train_*.py")}
LOSS = re.compile(r"loss(?:': ')?\s*(\d+\.\d+)")


def test_every_script_is_tried_here():
    assert PROMISES.keys() == WRITTEN


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_script_knows_nothing_of_kompakt_and_is_short(name):
    text = (FRAMEWORKS / f"train_{name}.py").read_text("utf-8")
    assert "kompakt" not in text.lower()
    assert len(text.splitlines()) <= 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def trained(name: str, home: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """The job's command with its environment; `before`: words before it."""
    told = worker(name, free_port())
    bin_folder = Path(sys.executable).parent
    environ = {**os.environ, **told.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "200"}
    environ |= {"HOME": str(home), "TMPDIR": str(home), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*before, *told.command], env=environ, capture_output=True, text=True, timeout=550, check=False, cwd=home
    )
    assert done.returncode == 0, done.stderr
    return done


def losses(done: subprocess.CompletedProcess[str]) -> list[float]:
    """All that it printed, in order."""
    return [float(number) for number in LOSS.findall(done.stdout)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [pytest.param(name, marks=in_turn(TURN_OF[name])) for name in PROMISES])
def test_a_script_trains_compressed_as_it_trains_plainly(name, tmp_path):
    promise = PROMISES[name]
    if "frameworks" not in os.environ.get("KOMPAKT_REQUIRE", ""):
        needs("torch")
        if missing := [one for one in promise.packages if not any((Path(folder) / one).is_dir() for folder in sys.path)]:
            pytest.skip(f"{', '.join(missing)}: not installed: `make sync-frameworks`")
    plain = losses(trained(name, tmp_path))
    done = trained(name, tmp_path, "kompakt", "run", "--")
    compressed = losses(done)
    assert plain[0] > promise.first_to_last * plain[-1]
    assert compressed[0] > promise.first_to_last * compressed[-1]
    assert compressed[-1] == pytest.approx(plain[-1], rel=promise.closeness)
    assert (found := re.search(r"(\S+) times smaller", done.stderr)), done.stderr
    assert float(found[1]) > promise.ratio
    assert ", 0 beyond what was promised" in done.stderr
    assert re.search(r"kompakt: activations held at most \S+ MB instead of \S+ MB \(\S+ times less\)", done.stderr)
