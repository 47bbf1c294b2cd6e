"""Two racks of two DGX-1 (V100) each, and plain pods that occupy them."""

from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.office import Office
from tests.support.extender.world import World, pod


def on_racks(policy: ClusterPolicy | None = None) -> Office:
    """An office whose cluster has two racks of two DGX-1 each."""
    world = World()
    for rack in "ab":
        for index in range(2):
            world.add_node(f"{rack}{index}", rack=rack)
    office = Office(world) if policy is None else Office(world, policy)
    office.take_over()
    return office


def occupy(office: Office, node: str, gpus: int) -> None:
    """Plain pods of one GPU each on the node's first GPUs."""
    for index in range(gpus):
        notes = {"kompakt.dev/gpus": f"GPU-{node}-{index}"}
        office.world.add_pod(pod(f"{node}-{index}", 1, annotations=notes, nodeName=node))


def vacate(office: Office, node: str, gpus: int, first: int = 0) -> None:
    """Plain pods of one GPU each end, from the node's first GPUs on."""
    for index in range(first, first + gpus):
        office.world.delete_pod(f"{node}-{index}")


def half_full(office: Office, *nodes: str) -> None:
    for node in nodes or ("a0", "a1", "b0", "b1"):
        occupy(office, node, 4)
