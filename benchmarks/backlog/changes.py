"""What one change costs the planner's processor, by how many gangs wait and how many nodes there are.

    python -m benchmarks.backlog.changes [--nodes 1000] [--gangs 1000] [--changes 20] [--below]

All nodes are full but for one GPU, which no gang can use. Two kinds of change, by turns: a plain pod is bound to such a GPU,
which is nothing to a gang; and a pod of four GPUs ends, which one gang at most can use. Counted is this process's processor time
from when the watch shows the change until two cycles are over: the second is woken by what the first wrote. Core, which is asked
in threads otherwise, is asked in this one.
`--nodes` and `--gangs` take lists, as `100,1000`.
`--below`: the gangs could have what runs ended, but not before five minutes are over.
"""

import argparse
import asyncio
import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.backlog.cluster import BLOCK, CLASSES, RACK, name_of
from kompakt_core import contract as c
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender import made_objects as objects
from tests.support.extender.leader import Leader
from tests.support.extender.world import World

PARTS = ((0, 4), (4, 7))  # the GPUs that two pods on each node hold; the last is free


def occupy(world: World, node: str, name: str, first: int, last: int) -> None:
    """A plain pod on these GPUs of the node, as its plugin reports it."""
    uuids = [f"GPU-{node}-{index}" for index in range(first, last)]
    made = objects.pod(name, last - first, annotations={c.ANN_GPUS: ",".join(uuids)}, nodeName=node)
    made["status"] |= {"phase": "Running", "startTime": "2026-01-31T12:00:00Z"}  # when the leader's clock stands still
    world.add_pod(made)
    held = world.topologies[node]["status"].setdefault("held", [])
    held += [{"uuid": uuid, "podUID": made["metadata"]["uid"]} for uuid in uuids]
    world.put("topologies", node, world.topologies[node])


def leave(world: World, node: str, name: str) -> None:
    """The pod ends, and the plugin says so."""
    uid = world.pods[name]["metadata"]["uid"]
    world.delete_pod(name)
    status = world.topologies[node]["status"]
    status["held"] = [one for one in status["held"] if one["podUID"] != uid]
    world.put("topologies", node, world.topologies[node])


def cluster(nodes: int, gangs: int, priority: int, chance: random.Random) -> World:
    world = World()
    for number in range(nodes):
        node = name_of(number)
        world.add_node(node, rack=f"r{number // RACK}", block=f"b{number // BLOCK}")
        for part, (first, last) in enumerate(PARTS):
            occupy(world, node, f"filler-{node}-{part}", first, last)
    for number in range(gangs):
        world.add_gang(f"gang-{number:05}", *chance.choice(CLASSES), priority=priority)
    return world


async def cost(leader: Leader, change: Callable[[], None]) -> float:
    """Seconds of processor time that follow from a change."""
    change()
    start = time.process_time()
    for _ in range(2):
        leader.see()
        await leader.plan()
    return time.process_time() - start


async def measure(nodes: int, gangs: int, changes: int, priority: int, seed: int = 1) -> dict[str, list[float]]:
    chance = random.Random(seed)
    leader = Leader(cluster(nodes, gangs, priority, chance), ClusterPolicy("no-wait", bare_pods=True))
    leader.take_over()
    for _ in range(3):
        await leader.plan()
        leader.see()
    gc.collect()
    gc.freeze()
    world, took = leader.world, dict[str, list[float]](taken=[], freed=[])
    for number, node in enumerate(map(name_of, chance.sample(range(nodes), changes))):
        took["taken"].append(await cost(leader, lambda: occupy(world, node, f"more-{number}", 7, 8)))  # noqa: B023
        took["freed"].append(await cost(leader, lambda: leave(world, node, f"filler-{node}-0")))  # noqa: B023
    gc.unfreeze()
    return took


def row(nodes: int, gangs: int, took: dict[str, list[float]]) -> str:
    def told(values: Sequence[float]) -> str:
        return f"{statistics.median(values) * 1e3:10.2f} ({min(values) * 1e3:.2f}-{max(values) * 1e3:.2f})"

    return f"{nodes:6} {gangs:6} " + " ".join(told(took[kind]) for kind in ("taken", "freed"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def numbers(text: str) -> list[int]:
        return [int(one) for one in text.split(",")]

    parser.add_argument("--nodes", type=numbers, default=[1000])
    parser.add_argument("--gangs", type=numbers, default=[1000])
    parser.add_argument("--changes", type=int, default=20, help="of each kind")
    parser.add_argument("--below", action="store_true", help="what runs is of lower priority")
    given: Any = parser.parse_args()
    print(" nodes  gangs  ms a change: taken (least-most), freed (least-most)")
    for nodes in given.nodes:
        for gangs in given.gangs:
            print(row(nodes, gangs, asyncio.run(measure(nodes, gangs, given.changes, 10 * given.below))), flush=True)


if __name__ == "__main__":
    main()
