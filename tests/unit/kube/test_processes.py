"""Processes are known by pid, start time and boot, and stopped only when all three agree."""

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.kube import ports as port_range
from tools.kube.ports import HIGHEST, LOWEST, NoFreePort, free_ports, is_free
from tools.kube.processes import boot_id, launch_detached, launch_tied, look, read_records, stop, wait_until, write_records

SLEEP = [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(60)"]


def test_a_started_program_is_known_again_from_its_record(tmp_path: Path) -> None:
    assert boot_id()
    assert read_records(tmp_path / "records.json") == []
    process = launch_detached(SLEEP, tmp_path / "log")
    write_records(tmp_path / "records.json", [process])
    (known,) = read_records(tmp_path / "records.json")
    assert known == process
    assert known.alive()
    for change in ({"started": 1}, {"boot": "another"}):
        other = replace(process, **change)
        assert not other.alive(), "a process that differs in start or boot is not ours"
        stop([other], grace=0)
        assert process.alive()
    stop([known], grace=1)
    assert not known.alive()


def test_a_program_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    process = launch_tied([sys.executable, "-c", stubborn], tmp_path / "log")
    assert wait_until(lambda: "on" in (tmp_path / "log").read_text(), 5)
    stop([process], grace=0.1)
    assert not process.alive()


def test_an_ended_child_is_not_alive_though_nobody_waited_for_it(tmp_path: Path) -> None:
    process = launch_detached([sys.executable, "-c", ""], tmp_path / "log")
    assert wait_until(lambda: not process.alive(), 5)
    stop([process], grace=0)


# The first thread ends alone, by the system call exit (60 on x86_64, 93 on aarch64); another one holds the port.
HALF_DEAD = """
import ctypes, platform, socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=[60]).start()
print("on", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_program_of_which_threads_are_left_is_alive_until_they_have_ended(tmp_path: Path) -> None:
    """They hold its files and ports: who starts it anew too early finds its port taken."""
    process = launch_detached([sys.executable, "-c", HALF_DEAD], tmp_path / "log")
    state = Path(f"/proc/{process.pid}/stat")
    assert wait_until(lambda: ") Z " in state.read_text(), 10)
    assert process.alive()
    stop([process], grace=0)
    assert not process.alive()


def test_a_command_name_with_blanks_and_parentheses_does_not_confuse(tmp_path: Path) -> None:
    odd = tmp_path / "a) S (b"
    odd.symlink_to("/bin/sleep")
    process = launch_detached([str(odd), "60"], tmp_path / "log")
    seen = look(process.pid)
    assert seen is not None
    assert seen.started == process.started
    stop([process], grace=0)


@given(st.one_of(st.binary(), st.recursive(st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)))
def test_a_damaged_record_file_holds_nothing(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(content)
    assert read_records(path) == []


def test_free_ports_are_different_free_and_out_of_the_clients_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(LOWEST <= port < HIGHEST and is_free(port) for port in ports)


def test_too_few_free_ports_is_a_sentence_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(port_range, "LOWEST", port)
        monkeypatch.setattr(port_range, "HIGHEST", port + 1)
        with pytest.raises(
            NoFreePort, match=f"1 free ports are needed and 127.0.0.1 has 0 between {port} and {port}: end programs"
        ):
            free_ports(1)
