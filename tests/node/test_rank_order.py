"""All-reduces over links that the kernel slows down: the order that core finds, beside names and beside every other order.

No cluster: six network namespaces, which are gone with the programs in them.
"""

import os
import re
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import pytest

from benchmarks import rank_order
from benchmarks.rank_order import Nodes
from benchmarks.shaped_network import Fabric, running, wait_until_apart
from kompakt_core.placement.collective_cost import Collective, order_cost
from tests.support.needs import needs
from tools.kube.command import CommandFailed, output

RACKS = (0, 1, 0, 1, 0, 1)
NAMED = tuple(range(len(RACKS)))
HALF_A_MEGABYTE = 1 << 17


OURS = re.compile(r"^[0-9]+: (spine|(rack|port|up|down)[0-9]+)[:@]", re.MULTILINE)


def apart() -> dict[int, str]:
    """The network namespaces of this process's children, other than its own, by process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found[int(stat.parent.name)] = os.readlink(stat.parent / "ns/net")
    return {pid: namespace for pid, namespace in found.items() if namespace != os.readlink("/proc/self/ns/net")}


def obstacle() -> str | None:
    """Why the kernel shapes no link here."""
    if os.geteuid() != 0:
        return "needs root"
    wanted = (
        "tc qdisc add dev lo root tbf rate 1mbit burst 16kb latency 1ms",
        "ip link add one type bridge",
        "ip link add one type veth peer name two",
    )
    for words in wanted:
        try:
            output(f"unshare -n {words}".split())
        except (CommandFailed, FileNotFoundError) as error:
            return f"{words}: {error}"
    return None


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    needs("torch")
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    with rank_order.workers(Fabric(RACKS)) as found:
        yield found


@pytest.mark.parametrize("collective", Collective)
def test_no_order_takes_clearly_less_than_the_one_that_core_finds(nodes: Nodes, collective: Collective) -> None:
    own = rank_order.ours(collective, RACKS)
    orders = rank_order.all_orders(RACKS)
    times = rank_order.measured(nodes, collective, orders, HALF_A_MEGABYTE, rounds=1, repeats=2)
    median = {order: statistics.median(taken) for order, taken in times.items()}
    assert median[own] <= 1.25 * min(median.values()), f"{own}: {median}"
    assert median[NAMED] >= 1.3 * median[own], f"{own}: {median}"


@pytest.mark.parametrize("collective", Collective)
def test_one_order_stands_for_all_that_cost_the_same(collective: Collective) -> None:
    costs = rank_order.levels(RACKS)
    all_costs = {order_cost(collective, (0, *rest), [1] * 6, costs) for rest in permutations(range(1, 6))}
    orders = rank_order.all_orders(RACKS)
    assert len(orders) == len({tuple(RACKS[node] for node in order) for order in orders}) == 10
    assert {order_cost(collective, order, [1] * 6, costs) for order in orders} == all_costs
    own = rank_order.ours(collective, RACKS)
    assert own in orders
    assert order_cost(collective, own, [1] * 6, costs) == min(all_costs)


def test_nothing_is_left_of_a_network() -> None:
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    others = apart()
    with running(Fabric((0, 1)), ["cat"]) as programs:
        assert [program.poll() for program in programs] == [None, None]
        made = {pid: namespace for pid, namespace in apart().items() if pid not in others}
        assert len(set(made.values())) == 3, "of each program, and of the racks"
        links = "".join(output(["nsenter", f"--target={pid}", "-n", "--", "ip", "-o", "link"]) for pid in made)
        wanted = {"spine", "rack0", "rack1", "up0", "up1", "down0", "down1", "port0", "port1"}
        assert {found[1] for found in OURS.finditer(links)} == wanted
        assert not OURS.search(output(["ip", "-o", "link"]))
    assert [program.returncode for program in programs] == [0, 0]
    assert not [pid for pid in made if Path(f"/proc/{pid}").exists()], "unnamed, a namespace ends with its last process"
    assert not OURS.search(output(["ip", "-o", "link"]))


def test_a_program_that_ended_before_it_read_what_it_was_told_stops_nothing() -> None:
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    with running(Fabric((0,)), ["cat"]) as (program,):
        program.kill()
        program.wait()
        assert program.stdin
        program.stdin.write("more")


def test_a_program_that_ends_while_it_is_looked_at_is_told_of_by_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    program = subprocess.Popen(["false"], text=True)
    program.wait()
    codes = iter((None, 1))
    monkeypatch.setattr(program, "poll", lambda: next(codes))
    with pytest.raises(RuntimeError, match="ended with code 1"):
        wait_until_apart(program)
