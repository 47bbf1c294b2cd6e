"""`python -m tools.kube` as a person uses it, without root: up, status, kubectl, down, and nothing left."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.kube.binaries import find
from tools.kube.components import Addresses, control_plane, make_keys
from tools.kube.control_plane import ControlPlane, run_folder
from tools.kube.parts import ROOT
from tools.kube.ports import free_ports
from tools.kube.processes import Process, launch_tied, stop

Kube = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kube:
    """Runs the command with clusters of its own, below pytest's folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-m", "tools.kube", *words]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return run


def crashed(name: str) -> Process:
    """What a start that was killed after its first program leaves: a run folder, and that program."""
    folder = run_folder(name)
    folder.mkdir()
    etcd, peer = free_ports(2)
    addresses = Addresses(etcd=etcd, etcd_peer=peer)
    plane = ControlPlane(folder, addresses, make_keys(folder / "pki", addresses), launch_tied)
    return plane.start_component(control_plane(find, addresses, plane.keys, folder)[0])


@pytest.mark.timeout(900)  # two control planes start, one after the other: minutes where others use all cores
def test_up_removes_what_a_crash_left_and_down_leaves_nothing(kube: Kube, tmp_path: Path) -> None:
    left = crashed(f"t{os.getpid()}")
    assert left.alive()
    name = f"--name=t{os.getpid()}"
    try:
        up = kube("up", name, "--simulated=2")
        assert up.returncode == 0, up.stderr
        assert "stopping 1 programs" in up.stderr
        assert not left.alive()
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
    stop([left], grace=0)  # it is this process's child, so only we can take leave of it


def test_a_command_without_its_cluster_says_so(kube: Kube) -> None:
    done = kube("kubectl", "--name=absent", "get", "nodes")
    assert done.returncode == 1
    assert "no cluster is up" in done.stderr
    assert "Traceback" not in done.stderr
