"""Two racks of two DGX-1 (V100) each, and plain pods that occupy them."""

from kompakt_core.contract import timestamps
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.world import World


def on_racks(policy: ClusterPolicy | None = None) -> Leader:
    """A leader whose cluster has two racks of two DGX-1 each."""
    world = World()
    for rack in "ab":
        for index in range(2):
            world.add_node(f"{rack}{index}", rack=rack)
    leader = Leader(world) if policy is None else Leader(world, policy)
    leader.take_over()
    return leader


def occupy(leader: Leader, node: str, gpus: int) -> None:
    """Plain pods of one GPU each on the node's first GPUs."""
    for index in range(gpus):
        notes = {"kompakt.dev/gpus": f"GPU-{node}-{index}"}
        leader.world.add_pod(pod(f"{node}-{index}", 1, annotations=notes, nodeName=node))


def run_plain(leader: Leader, node: str, gpus: int, priority: int = 0, *, controlled: bool, namespace: str = "default") -> None:
    """Plain pods of one GPU each that kubelet has taken, on the node's first GPUs."""
    for index in range(gpus):
        notes = {"kompakt.dev/gpus": f"GPU-{node}-{index}"}
        made = pod(f"{node}-{index}", 1, annotations=notes, nodeName=node, priority=priority)
        made["metadata"]["namespace"] = namespace
        made["status"] = {"phase": "Running", "startTime": timestamps.encode(leader.now)}
        if controlled:
            made["metadata"]["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True, "uid": "rs"}
            ]
        leader.world.add_pod(made)
    leader.world.report(node)


def vacate(leader: Leader, node: str, gpus: int, first: int = 0) -> None:
    """Plain pods of one GPU each end, from the node's first GPUs on."""
    for index in range(first, first + gpus):
        leader.world.delete_pod(f"{node}-{index}")


def half_full(leader: Leader, *nodes: str, gpus: int = 4) -> None:
    for node in nodes or ("a0", "a1", "b0", "b1"):
        occupy(leader, node, gpus)
