"""Commands in the background: how much they take, what is seen of them, and that none outlives its block."""

import os
import sys
import time
from pathlib import Path

import pytest

from tools.background import BackgroundCommand
from tools.kube.processes import look

PRIORITIES = """
import os, pathlib
group = pathlib.Path("/proc/self/autogroup")
print(os.getpriority(os.PRIO_PROCESS, 0), group.read_text().split()[-1] if group.exists() else "none", flush=True)
"""
BEGETS = "import subprocess, sys; child = subprocess.Popen(['sleep', '300']); print(child.pid, flush=True); child.wait()"


def test_it_takes_less_than_others_of_its_session_and_its_session_less_than_others(tmp_path: Path) -> None:
    with BackgroundCommand([sys.executable, "-c", PRIORITIES], tmp_path) as command:
        returncode, text = command.ended()
    group = "3" if Path("/proc/self/autogroup").exists() else "none"
    assert (returncode, text.split()) == (0, [str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)), group])


def test_its_exit_code_and_all_that_it_wrote_are_given(tmp_path: Path) -> None:
    writes = "import os, sys; os.write(1, b'out \\xff\\n'); os.write(2, b'err\\n'); sys.exit(3)"
    with BackgroundCommand([sys.executable, "-c", writes], tmp_path) as command:
        assert command.ended() == (3, "out �\nerr\n")


def test_it_runs_where_it_is_told(tmp_path: Path) -> None:
    with BackgroundCommand(["pwd"], tmp_path) as command:
        assert command.ended() == (0, f"{tmp_path.resolve()}\n")


def test_nothing_of_it_outlives_a_block_that_breaks(tmp_path: Path) -> None:
    command = Begetting([sys.executable, "-c", BEGETS], tmp_path)
    with pytest.raises(RuntimeError, match="broken"):
        breaks(command)
    gone(command.child)


def breaks(command: "Begetting") -> None:
    with command:
        while not (text := command.so_far()):
            time.sleep(0.05)
        command.child = int(text)
        raise RuntimeError("broken")


class Begetting(BackgroundCommand):
    """A command that says the pid of a process that it starts."""

    child = 0

    def so_far(self) -> str:
        return os.pread(self._written.fileno(), 100, 0).decode()


def gone(pid: int) -> None:
    """Waits until a process is gone; its new parent may not have asked for its end."""
    while (seen := look(pid)) is not None and seen.state != "Z":
        time.sleep(0.05)
