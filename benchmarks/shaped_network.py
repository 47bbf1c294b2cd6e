"""Programs on nodes of a made-up network: each in a network namespace of its own, racks as bridges, links of stated rates.

The namespaces have no names: they are gone with the programs in them, also when whoever started these is killed.
Needs root, and the kernel's tbf queue; no netem, which not every kernel has.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from tools.kube.command import output

BURST: Final = "16kb"  # what a link carries at once after a pause: little beside a message
QUEUE_MS: Final = 50


@dataclass(frozen=True, slots=True)
class Fabric:
    """`racks[i]`: the rack of node i, from 0. Rates in Mbit/s, each way: of each node's link, of each rack's."""

    racks: tuple[int, ...]
    node_mbit: int = 100
    rack_mbit: int = 50


def address(node: int) -> str:
    return f"10.98.0.{node + 1}"


@contextmanager
def running(
    fabric: Fabric, command: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[list["subprocess.Popen[str]"]]:
    """One process of the command for each node, whose standard input and output are text pipes; all ended afterwards.

    Raises:
        CommandFailed: the kernel refuses a link or a queue.
    """
    with ExitStack() as ending:
        core = ending.enter_context(_alone(["cat"]))
        for rack in sorted(set(fabric.racks)):
            _add_rack(core.pid, rack, fabric.rack_mbit)
        nodes = []
        for node, rack in enumerate(fabric.racks):
            nodes.append(ending.enter_context(_alone(command, env)))
            _add_node(core.pid, nodes[-1].pid, node, rack, fabric.node_mbit)
        yield nodes


@contextmanager
def _alone(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A process in a network namespace of its own; it ends when its input does, or else is ended."""
    words = ["unshare", "-n", *command]
    program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
    try:
        wait_until_apart(program)
        yield program
    finally:
        if program.stdin:
            with suppress(OSError):  # what it never read; it may be gone
                program.stdin.close()
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        if program.stdout:
            program.stdout.close()


def wait_until_apart(program: "subprocess.Popen[str]") -> None:
    """Until it has its own network namespace.

    Raises:
        RuntimeError: it ended first, or needs more than 10 s.
    """
    own = os.readlink("/proc/self/ns/net")
    for _ in range(1000):
        if program.poll() is not None:
            raise RuntimeError(f"{program.args!r} ended with code {program.returncode}")
        with suppress(OSError):  # it ended meanwhile: the next turn says so
            if os.readlink(f"/proc/{program.pid}/ns/net") != own:
                return
        time.sleep(0.01)
    raise RuntimeError("no network namespace after 10 s; this needs root")


def _in(pid: int, *words: object) -> None:
    output(["nsenter", f"--target={pid}", "-n", "--", *map(str, words)])


def _shape(pid: int, link: str, mbit: int) -> None:
    """What leaves by this link."""
    queue = f"tbf rate {mbit}mbit burst {BURST} latency {QUEUE_MS}ms"
    _in(pid, "tc", "qdisc", "add", "dev", link, "root", *queue.split())


def _add_rack(core: int, rack: int, mbit: int) -> None:
    """A bridge, with one link to the bridge of all racks."""
    if rack == 0:
        _in(core, "ip", "link", "add", "spine", "type", "bridge")
        _in(core, "ip", "link", "set", "spine", "up")
    bridge, up, down = f"rack{rack}", f"up{rack}", f"down{rack}"
    _in(core, "ip", "link", "add", bridge, "type", "bridge")
    _in(core, "ip", "link", "add", up, "type", "veth", "peer", "name", down)
    for link, master in ((up, bridge), (down, "spine")):
        _in(core, "ip", "link", "set", link, "master", master, "up")
        _shape(core, link, mbit)
    _in(core, "ip", "link", "set", bridge, "up")


def _add_node(core: int, pid: int, node: int, rack: int, mbit: int) -> None:
    port = f"port{node}"
    _in(core, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", pid)
    _in(core, "ip", "link", "set", port, "master", f"rack{rack}", "up")
    _in(pid, "ip", "address", "add", f"{address(node)}/24", "dev", "eth0")
    for link in ("lo", "eth0"):
        _in(pid, "ip", "link", "set", link, "up")
    _shape(core, port, mbit)
    _shape(pid, "eth0", mbit)


PYTHON: Final = sys.executable
