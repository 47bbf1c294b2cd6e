"""Sessions that tests start, and training scripts that run as in a pod."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest

# The tests' tensors are small, and on a busy machine threads that wait for each other cost seconds.
with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
ROOT = Path(__file__).parents[3] / "runtime"


@pytest.fixture(scope="module")
def payload(tmp_path_factory) -> Path:
    """What a pod finds after the init container ran."""
    folder = tmp_path_factory.mktemp("payload")
    subprocess.run([ROOT / "assemble", folder / "image"], check=True)
    (folder / "pod").mkdir()
    subprocess.run([folder / "image" / "install", folder / "pod"], check=True)
    return folder / "pod"


@pytest.fixture
def pod(payload, tmp_path):
    """Runs a command as a pod does; what it said, the pod's summary, and its processes' own figures, the busiest first."""
    state, log = tmp_path / "state", tmp_path / "log"
    state.mkdir()
    log.touch()

    def run(command: list[str], **environ: str):
        ours = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(payload / "bootstrap"), "KOMPAKT_MODE": "ErrorBounded",
            "KOMPAKT_STATE_DIR": str(state), "KOMPAKT_TERMINATION_LOG": str(log), "KOMPAKT_ATTEMPT": "1", **environ,
        }  # fmt: skip
        done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=550, check=False)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(path.read_text()) for path in state.glob(f"figures-{ours['KOMPAKT_ATTEMPT']}-*.json")]
        return done, json.loads(log.read_text()), sorted(rows, key=lambda row: -row["steps"])

    return run


@pytest.fixture
def running():
    """Starts sessions and stops them again."""
    from kompakt_runtime.autograd_state import innermost
    from kompakt_runtime.config import RuntimeConfig
    from kompakt_runtime.session import Session

    started = []

    def start(offloading=None, **settings):
        session = Session(RuntimeConfig(**{"mode": "ErrorBounded", "min_tensor_bytes": 0, **settings}), offloading=offloading)
        session.start()
        started.append(session)
        return session

    yield start
    for session in started:
        session.stop()
    assert innermost() is None, "hooks left behind"
