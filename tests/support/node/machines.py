"""One more real node for a test."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.node.world import World
from tools.kube import binaries, install, real, scatter, stack
from tools.kube.components import Find
from tools.kube.kubectl import await_state, condition
from tools.kube.node import RealNode


@contextmanager
def third_machine(world: World, find: Find = binaries.find, disk_mib: int = 0) -> Iterator[RealNode]:
    """It plays the first machine, with the programs that `find` gives, and offers its GPUs; gone afterwards."""
    pause = world.images.names["pause"]
    third = real.add_node(world.cluster, stack.MACHINES[0], find, world.images.root, pause, disk_mib=disk_mib)
    try:
        await_state(lambda: condition(world.kubectl.get("node", third.name), "Ready"), f"{third.name} Ready", 60)
        install.await_gpus(world.kubectl, {third.name: scatter.GPUS})
        yield third
    finally:
        real.remove_node(world.cluster, third)
        world.kubectl("delete", "node", third.name)
