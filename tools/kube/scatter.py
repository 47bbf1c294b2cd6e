"""Small pods that take GPUs first, so that what is left for a gang is scattered over both machines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from kompakt_core.contract import RESOURCE, SCHEDULER_NAME, bound_gpus
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph
from tools.kube.kubectl import Kubectl, await_state

LABEL = "app=small"
GPUS = 8
LEFT = 3  # free GPUs of each machine: too few for a gang of two workers with two GPUs, so it needs both machines
WANTED = 2


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster as the gang finds it: link graphs of its two machines, and the GPUs that were left free, by node."""

    kubectl: Kubectl
    graphs: dict[str, LinkGraph]
    free: dict[str, tuple[int, ...]]

    def indices(self, node: str, uuids: Sequence[str]) -> tuple[int, ...]:
        """The node's indices of these GPUs, in the same order."""
        known = {str(gpu.uuid): int(gpu.index) for gpu in self.graphs[node].gpus}
        return tuple(known[uuid] for uuid in uuids)


def scatter(kubectl: Kubectl, graphs: dict[str, LinkGraph], image: str) -> Stage:
    """Fill the machines with one-GPU pods and end those that hold a telling set of each.

    Raises:
        TimeoutError: pods do not run, or their GPUs are not reported free.
    """
    free = {node: telling_free_set(graph, LEFT, WANTED) for node, graph in graphs.items()}
    occupy(kubectl, image, GPUS * len(graphs))
    release(kubectl, free)
    return Stage(kubectl, graphs, free)


def telling_free_set(graph: LinkGraph, left: int, wanted: int) -> tuple[int, ...]:
    """The `left` GPUs whose first `wanted` (what first-fit takes) are worst against their best `wanted` as a ring."""
    table = table_for(graph, Pattern.RING)

    def gain(free: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        best = max(table.value(_mask(chosen)) for chosen in combinations(free, wanted))
        return table.value(_mask(free[:wanted])) - best, free

    return min(combinations(range(len(graph.gpus)), left), key=gain)


def occupy(kubectl: Kubectl, image: str, count: int) -> None:
    """Start that many pods with one GPU each and wait until all run.

    Raises:
        TimeoutError: some do not.
    """
    pods = [_pod(f"small-{number}", image) for number in range(count)]
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    await_state(lambda: len(_running(kubectl)) == count, f"{count} running small pods", 120)


def release(kubectl: Kubectl, free: Mapping[str, tuple[int, ...]]) -> None:
    """End the pods that hold these GPUs (by node), and wait until the GPUs are reported free.

    Raises:
        TimeoutError: they are not.
    """
    names = [
        pod["metadata"]["name"]
        for pod in _running(kubectl)
        if set(bound_gpus.indices(pod["metadata"]["annotations"])) & set(free.get(pod["spec"]["nodeName"], ()))
    ]
    kubectl("delete", "pods", *names, "--wait=false")
    await_state(
        lambda: all(kubectl.get("gputopology", node)["status"]["free"] == len(gpus) for node, gpus in free.items()),
        "free GPUs in the nodes' reports",
        60,
    )


def _running(kubectl: Kubectl) -> list[dict[str, Any]]:
    return [pod for pod in kubectl.items("pods", f"--selector={LABEL}") if pod["status"].get("phase") == "Running"]


def _pod(name: str, image: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {RESOURCE: "1"}, "requests": {"cpu": "10m", "memory": "8Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "small"}},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container], "terminationGracePeriodSeconds": 1},
    }


def _mask(gpus: tuple[int, ...]) -> int:
    return sum(1 << gpu for gpu in gpus)
