"""All-reduces over links that the kernel slows down: the order that core finds, beside names and beside every other order.

No cluster: six network namespaces, which are gone with the programs in them.
"""

import os
import statistics
from collections.abc import Iterator
from itertools import permutations

import pytest

from benchmarks import rank_order
from benchmarks.rank_order import Nodes
from benchmarks.shaped_network import Fabric, running
from kompakt_core.placement.collective_cost import Collective, order_cost
from tests.support.needs import needs
from tools.kube.command import CommandFailed, output

RACKS = (0, 1, 0, 1, 0, 1)
NAMED = tuple(range(len(RACKS)))
HALF_A_MEGABYTE = 1 << 17


def obstacle() -> str | None:
    """Why the kernel shapes no link here."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        output(
            [
                "unshare",
                "-n",
                "tc",
                "qdisc",
                "add",
                "dev",
                "lo",
                "root",
                "tbf",
                "rate",
                "1mbit",
                "burst",
                "16kb",
                "latency",
                "1ms",
            ]
        )
    except (CommandFailed, FileNotFoundError) as error:
        return f"no link can be slowed down: {error}"
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
    before = output(["ip", "-o", "link"]), output(["ip", "netns"])
    with running(Fabric((0, 1)), ["cat"]) as programs:
        assert [program.poll() for program in programs] == [None, None]
    assert [program.returncode for program in programs] == [0, 0]
    assert (output(["ip", "-o", "link"]), output(["ip", "netns"])) == before
