"""Sessions that tests start, and training scripts that run as in a pod."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The tests' tensors are small, and on a busy machine threads that wait for each other cost seconds.
# The first optimizer of a process loads the compiler, which takes seconds; no test should pay for it.
with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)])
ROOT = Path(__file__).parents[3] / "runtime"


@pytest.fixture(autouse=True)
def impossible(monkeypatch) -> Iterator[list[str]]:
    """Transitions that a saved storage was refused in this process: the hooks count them and go on, a test fails."""
    try:
        from kompakt_runtime.saved import states
    except ImportError:
        yield []
        return
    refused: list[str] = []

    def noted(now: Any, then: Any) -> None:
        try:
            check(now, then)
        except states.ImpossibleTransition as error:
            refused.append(str(error))
            raise

    check = states.check
    monkeypatch.setattr(states, "check", noted)
    yield refused
    assert not refused


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """It compiles a function eight times at most in a process, whichever tests asked for that."""
    yield
    compiler = sys.modules.get("torch._dynamo")
    if compiler is not None and compiler.utils.counters:
        compiler.reset()
        compiler.utils.counters.clear()


@pytest.fixture(scope="session")
def payload(tmp_path_factory) -> Path:
    """What a pod finds after the init container ran."""
    folder = tmp_path_factory.mktemp("payload")
    subprocess.run([ROOT / "assemble", folder / "image"], check=True)
    (folder / "pod").mkdir()
    subprocess.run([folder / "image" / "install", folder / "pod"], check=True)
    return folder / "pod"


@pytest.fixture
def environ(tmp_path) -> dict[str, str]:
    """That of a process of a pod, with the start-up hook as it lies here; the pod's state folder is there, and its last words."""
    state, log = tmp_path / "state", tmp_path / "log"
    state.mkdir()
    log.touch()
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "bootstrap"), "KOMPAKT_MODE": "ErrorBounded", "KOMPAKT_ATTEMPT": "1",
        "KOMPAKT_STATE_DIR": str(state), "KOMPAKT_TERMINATION_LOG": str(log),
    }  # fmt: skip


@pytest.fixture
def last_words(tmp_path) -> Callable[[], dict[str, Any]]:
    """What processes of the pod left in its termination log."""
    return lambda: json.loads((tmp_path / "log").read_text() or "{}")


@pytest.fixture
def pod(payload, environ, last_words, tmp_path):
    """Runs a command as a pod does; what it said, the pod's summary, and its processes' own figures, the busiest first."""

    def run(command: list[str], **more: str):
        ours = {**environ, "PYTHONPATH": str(payload / "bootstrap"), **more}
        done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=550, check=False)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(path.read_text()) for path in (tmp_path / "state").glob(f"figures-{ours['KOMPAKT_ATTEMPT']}-*.json")]
        return done, last_words(), sorted(rows, key=lambda row: -row["steps"])

    return run


@pytest.fixture
def running():
    """Starts sessions and stops them again."""
    from kompakt_runtime.compat.hooks import innermost
    from kompakt_runtime.config import RuntimeConfig
    from kompakt_runtime.session import Session

    started = []

    def start(offloading=None, memory=None, **settings):
        config = RuntimeConfig(**{"mode": "ErrorBounded", "min_tensor_bytes": 0, **settings})
        session = Session(config, offloading=offloading, memory=memory)
        session.start()
        started.append(session)
        return session

    yield start
    for session in started:
        session.stop()
    assert innermost() is None, "hooks left behind"
