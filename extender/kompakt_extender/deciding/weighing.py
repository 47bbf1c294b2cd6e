"""What the weighing process does: custom edges on nodes, one after another, for as long as it is given.

The verbs of kube-scheduler never weigh custom edges themselves: eight ranks take 50 ms for each new set of edges on a machine of
8 GPUs, and up to a second on one of 16 for each combination of free GPUs.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from kompakt_core.placement.model import NodeState, Rejection
from kompakt_extender.decide import Request, Weight, weigh


class WeighingTask(NamedTuple):
    """A request and nodes, each with whether a bind would have to wait there; `seconds`: no node is begun later than that."""

    request: Request
    nodes: tuple[tuple[NodeState, bool], ...]
    seconds: float


class WeighedNodes(NamedTuple):
    """Of as many nodes as there was time for, in their order; `seconds`: processor time that it took."""

    weights: tuple[Weight | Rejection, ...]
    seconds: float


def weigher() -> Callable[[WeighingTask], WeighedNodes]:
    """What the process answers with."""
    return weigh_nodes


def weigh_nodes(task: WeighingTask) -> WeighedNodes:
    """Weigh until there is no time left; one node at least."""
    until, began = time.monotonic() + task.seconds, time.process_time()
    found: list[Weight | Rejection] = []
    for state, waits in task.nodes:
        if found and time.monotonic() >= until:
            break
        found.append(weigh(task.request, state, waits))
    return WeighedNodes(tuple(found), time.process_time() - began)
