"""One process at a time serves a node."""

import subprocess
import sys

import pytest

from kompakt_device_plugin.node_lock import NodeLock

HOLD = """
import sys
from pathlib import Path
from kompakt_device_plugin.node_lock import NodeLock
print(NodeLock(Path(sys.argv[1])).take(), flush=True)
sys.stdin.read()
"""


def test_a_second_process_waits_until_the_first_is_dead(tmp_path):
    lock, command = NodeLock(tmp_path), [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        assert not lock.take()
        assert not lock.take()
        other.kill()
    assert lock.take()
    assert lock.take()


def test_a_released_lock_is_free(tmp_path):
    first, second = NodeLock(tmp_path), NodeLock(tmp_path)
    assert first.take()
    assert not second.take()
    first.release()
    first.release()
    assert second.take()
    second.release()


def test_a_folder_that_cannot_be_written_is_the_callers_to_handle(tmp_path):
    with pytest.raises(OSError, match="gone"):
        NodeLock(tmp_path / "gone").take()
