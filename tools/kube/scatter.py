"""Small pods that take GPUs first, so that what is left for a gang is scattered over both machines."""

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from kompakt_core.contract import ANN_GPU_INDICES, RESOURCE, SCHEDULER_NAME
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph
from tools.kube.kubectl import Kubectl, await_state

LABEL = "app=small"


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
        if int(pod["metadata"]["annotations"][ANN_GPU_INDICES]) in free.get(pod["spec"]["nodeName"], ())
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
