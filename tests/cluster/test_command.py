"""`python -m tools.kube` as a person uses it, without root: up, status, kubectl, down, and nothing left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.kube.parts import ROOT


@pytest.fixture
def kube(tmp_path: Path) -> object:
    """Runs the command with clusters of its own, below pytest's folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-m", "tools.kube", *words]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return run


def test_up_and_down_leave_nothing(kube: object, tmp_path: Path) -> None:
    assert callable(kube)
    name = f"--name=t{os.getpid()}"
    try:
        up = kube("up", name, "--simulated=2")
        assert up.returncode == 0, up.stderr
        assert Path(up.stdout.strip()).is_file()
        assert "accepts pods after" in up.stderr
        again = kube("up", name)
        assert "is up already" in again.stderr
        assert again.stdout == up.stdout
        status = kube("status", name)
        assert status.returncode == 0
        assert "kube-apiserver" in status.stdout
        nodes = kube("kubectl", name, "get", "nodes", "--output=name")
        assert nodes.stdout.split() == ["node/sim-0", "node/sim-1"]
    finally:
        down = kube("down", name)
    assert down.returncode == 0, down.stderr
    assert list(tmp_path.iterdir()) == []
    assert kube("status", name).returncode == 1
    assert "there is no cluster" in kube("down", name).stderr


def test_a_command_without_its_cluster_says_so(kube: object) -> None:
    assert callable(kube)
    done = kube("kubectl", "--name=absent", "get", "nodes")
    assert done.returncode == 1
    assert "no cluster is up" in done.stderr
    assert "Traceback" not in done.stderr
