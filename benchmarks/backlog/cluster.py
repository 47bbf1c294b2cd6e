"""The cluster that is played: full nodes, gangs that wait, and what happens on it while they do."""

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.backlog.played_api import WatchedWorld
from kompakt_core import contract as c
from tests.support.extender import made_objects as objects

GPUS: Final = 8
RACK, BLOCK = 16, 128
# (workers, GPUs each) of gangs, as often as they stand here: most are small, some take several nodes.
CLASSES: Final = ((1, 8), (1, 8), (1, 4), (1, 2), (2, 4), (2, 8), (2, 8), (4, 2), (4, 8), (8, 8))
DONE: Final[set[str]] = set()  # of gangs that run
ENDS: Final = (1, 1, 1, 2, 2, 4, 8)  # neighbouring nodes whose pods end together


def name_of(number: int) -> str:
    return f"node-{number:05}"


class Cluster:
    """A WatchedWorld, and who waits and runs in it. `freed`: when nodes became free; `took`: seconds until a plan named one.

    `pods_first`: gangs that wait have pods.
    """

    def __init__(self, nodes: int, gangs: int, seed: int, *, pods_first: bool = False) -> None:
        self._pods_first = pods_first
        self.world = WatchedWorld()
        self.took: list[float] = []
        self.planned = self.ended = self.changed = 0
        self.freed: dict[str, float] = {}
        self._random = random.Random(seed)
        self._nodes = nodes
        self._gangs = 0
        self._planned = set[str]()  # gangs that got places
        self._left: dict[str, set[str]] = {}  # pods of planned gangs that are not bound yet
        self._by_node: dict[str, set[str]] = defaultdict(set)  # names of pods that hold GPUs
        self._pods_of: dict[str, set[str]] = {}  # of gangs with a plan
        self.world.written = self._was_written
        self.world.add_namespace("default")
        for number in range(nodes):
            self.world.add_node(name_of(number), rack=f"r{number // RACK}", block=f"b{number // BLOCK}")
            self._fill(name_of(number))
        for _ in range(gangs):
            self.add_gang()
        self._names = list(self.world.pods)
        self.world.past.clear()

    def _fill(self, node: str) -> None:
        """Two pods hold four GPUs each."""
        for part in range(2):
            uuids = ",".join(f"GPU-{node}-{index}" for index in range(4 * part, 4 * part + 4))
            name = f"filler-{node}-{part}"
            made = objects.pod(name, 4, annotations={c.ANN_GPUS: uuids}, nodeName=node)
            made["status"]["phase"] = "Running"
            self.world.add_pod(made)
            self._by_node[node].add(name)
        self._report(node)

    def _report(self, node: str) -> None:
        """The node's device plugin writes which GPUs are held; World.report looks at all pods of the cluster for that."""
        pods = [self.world.pods[name] for name in self._by_node.get(node, ())]
        self.world.topologies[node]["status"]["held"] = [
            {"uuid": uuid, "podUID": pod["metadata"]["uid"]}
            for pod in pods
            for uuid in pod["metadata"]["annotations"][c.ANN_GPUS].split(",")
        ]
        self.world.put("topologies", node, self.world.topologies[node])

    def add_gang(self) -> None:
        """As the operator makes it."""
        workers, gpus = self._random.choice(CLASSES)
        self._gangs += 1
        add = self.world.add_gang if self._pods_first else self.world.add_expected_gang
        add(f"gang-{self._gangs:05}", workers, gpus)

    def change_a_pod(self) -> None:
        """A status that tells nothing to the planner, as most do."""
        name = self._random.choice(self._names)
        if (pod := self.world.pods.get(name)) is not None:
            pod["status"]["message"] = f"change {self.changed}"
            self.world.add_pod(pod)
            self.changed += 1

    def end_some(self) -> None:
        """All pods of neighbouring nodes end, and the device plugins say so."""
        count = self._random.choice(ENDS)
        first = self._random.randrange(self._nodes - count)
        for number in range(first, first + count):
            self._empty(name_of(number))
        self.ended += 1

    def _empty(self, node: str) -> None:
        """Gangs that had a pod here end whole."""
        touched = {node}
        for name in [*self._by_node.get(node, ())]:
            if name in self.world.pods:  # else it ended with another of its gang
                touched |= self._end(name)
        for one in touched:
            self._report(one)
            self.freed[one] = time.perf_counter()

    def _end(self, name: str) -> set[str]:
        """A pod, and its gang with it; the nodes that they were on."""
        gang = self.world.pods[name]["metadata"].get("labels", {}).get(c.LABEL_JOB_NAME)
        pods = [name] if gang is None else self._pods_of.pop(gang)
        nodes = {str(self.world.pods[pod]["spec"].get("nodeName", "")) for pod in pods} - {""}
        for node in nodes:
            self._by_node[node] -= set(pods)
        for pod in pods:
            self.world.delete_pod(pod)
        if gang is not None:
            self.world.delete_job(gang)
        return nodes

    def _was_written(self, path: str, name: str) -> None:
        """A job's status: has it places now? Then the operator creates its pods. Is it released?"""
        if not path.endswith("/status") or name not in self.world.jobs:
            return
        scheduling = self.world.jobs[name]["status"].get("scheduling", {})
        if not scheduling.get("plan"):
            return
        nodes = scheduling["plan"]["nodes"]
        if name not in self._planned:
            self._planned.add(name)
            self._note_places({node["name"] for node in nodes})
        if scheduling["state"] == "Reserved":
            self.world.create_pods(name)
        elif name not in self._left:
            self._left[name] = {pod["uid"].removeprefix("uid-") for node in nodes for pod in node["pods"]}
            self._pods_of[name] = set(self._left[name])

    def _note_places(self, nodes: set[str]) -> None:
        since = [self.freed[node] for node in nodes if node in self.freed]
        if since:
            self.took.append(time.perf_counter() - max(since))
        self.planned += 1

    def released(self) -> Sequence[dict[str, Any]]:
        """Pods of planned gangs that wait for their binding, as kube-scheduler would see them."""
        waiting = [self.world.pods[name] for left in self._left.values() if left for name in left if name in self.world.pods]
        return [pod for pod in waiting if not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName")]

    def bound(self, name: str) -> None:
        """The node's device plugin reports what the pod holds; a gang whose last pod this is runs."""
        pod = self.world.pods[name]
        gang, node = pod["metadata"]["labels"][c.LABEL_JOB_NAME], pod["spec"]["nodeName"]
        pod["status"]["phase"] = "Running"
        self.world.add_pod(pod)
        self._by_node[node].add(name)
        self._report(node)
        self._left[gang].discard(name)
        if not self._left[gang]:
            self._left[gang] = DONE
            self._forget_expected(gang)

    def _forget_expected(self, gang: str) -> None:
        """The operator, once all pods have nodes."""
        if self.world.jobs[gang]["status"].pop("expectedPods", None) is not None:
            self.world.put("jobs", gang, self.world.jobs[gang])
