"""200 pods come and go on machines of several kinds, placed by the real kube-scheduler with our extender.

At every instant no GPU is held twice, and every set is the one that core chooses for the GPUs that were free at the bind. What
was free is not asked of the extender: it is read from the API server's own record of pods and GPUTopologies. (That core
chooses rightly is for its unit tests, which compare it with exhaustive search.)
"""

import contextlib
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from kubernetes.client.exceptions import NotFoundException

from kompakt_client.transport import ApiClient, LineStream, connect
from kompakt_core import contract as c
from kompakt_core.errors import TryLater
from kompakt_core.patterns.names import NAMED
from kompakt_core.placement.choose import Choice, choose
from kompakt_core.placement.model import GpuRequest, PlacementPolicy
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.wire import graph_from_spec
from kompakt_extender.objects import RawEvent, RawList
from tests.support.cluster.more_machines import more_machines
from tests.support.cluster.pods import gpu_pod
from tests.support.cluster.replay import FINISHED, Moment, Stay, free_masks
from tests.support.turns import in_turn
from tools.kube.holding import HoldingWatch
from tools.kube.kwok import SECONDS_ANNOTATION
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually
from tools.kube.simulated import SimulatedMachine

pytestmark = in_turn(1)

PODS = 200
SEED = 20261121
LAG = 3.0  # seconds; see replay.free_masks
TOPOLOGIES = f"/apis/{c.API_VERSION}/{c.TOPOLOGY_PLURAL}"
# Besides the machines of all cluster tests; gone again afterwards.
MORE = (
    SimulatedMachine("mixed-mesh", "dgx1-p100", 8),
    SimulatedMachine("mixed-fabric", "b200-8-gpu2-off-fabric", 8),
    SimulatedMachine("mixed-bridge", "a100-pcie-4-one-bridge", 4),
)


@pytest.fixture(scope="module")
def mixed(plugins: ClusterSession, pair: Pair) -> Iterator[ClusterSession]:
    """The cluster with scheduler pair and machines of further kinds."""
    with more_machines(plugins, MORE):
        yield plugins


@dataclass
class Record:
    """Every version of every object of some kinds, in the order of the writes of each kind."""

    api: ApiClient
    events: dict[str, list[tuple[Moment, str, dict[str, Any]]]] = field(default_factory=lambda: defaultdict(list))
    broken: list[str] = field(default_factory=list)
    _streams: list[LineStream] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def follow(self, path: str) -> None:
        """Begin to record what is at this path."""
        answer = msgspec.json.decode(self.api.request("GET", path).body, type=RawList)
        for raw in answer.items or ():
            self._keep(path, "ADDED", msgspec.json.decode(raw))
        stream = self.api.watch(path, {"resourceVersion": answer.metadata.resource_version}, 600.0)
        self._streams.append(stream)
        self._threads.append(threading.Thread(target=self._read, args=(path, stream), daemon=True))
        self._threads[-1].start()

    def _read(self, path: str, stream: LineStream) -> None:
        try:
            for lines in stream.batches():
                for line in lines:
                    event = msgspec.json.decode(line, type=RawEvent)
                    self._keep(path, event.type, msgspec.json.decode(event.object))
        except TryLater as error:  # stop() ends it so as well
            self.broken.append(str(error))

    def _keep(self, path: str, kind: str, made: dict[str, Any]) -> None:
        self.events[path].append((Moment(int(made["metadata"]["resourceVersion"]), time.monotonic()), kind, made))

    def stop(self) -> None:
        for stream in self._streams:
            stream.stop()
        for thread in self._threads:
            thread.join(10)


def requests(chance: random.Random) -> GpuRequest:
    """Any request that some machine can grant."""
    return GpuRequest(
        pattern=chance.choice(NAMED),
        policy=chance.choice(list(PlacementPolicy)),
        sensitive=chance.random() < 0.5,
    )


def pod(number: int, gpus: int, gpu_request: GpuRequest, seconds: float) -> dict[str, Any]:
    notes = {
        c.ANN_PATTERN: gpu_request.pattern.value,
        c.ANN_POLICY: gpu_request.policy.value,
        c.ANN_SENSITIVITY: "High" if gpu_request.sensitive else "Low",
        SECONDS_ANNOTATION: f"{seconds:.2f}",
    }
    return gpu_pod(f"guest-{number:03}", gpus, notes)


def arrivals(cluster: ClusterSession, namespace: str) -> dict[str, tuple[int, GpuRequest]]:
    """Creates the pods over some twenty seconds, now and then several at once; deletes some before their time."""
    chance = random.Random(SEED)
    asked: dict[str, tuple[int, GpuRequest]] = {}
    for number in range(PODS):
        gpus, gpu_request = chance.choice((1, 1, 2, 2, 3, 4, 4, 5, 8)), requests(chance)
        made = pod(number, gpus, gpu_request, chance.uniform(0.5, 5.0))
        asked[made["metadata"]["name"]] = gpus, gpu_request
        cluster.core.create_namespaced_pod(namespace, made)
        if chance.random() < 0.2:
            leave_early(cluster, namespace, chance)
        time.sleep(chance.choice((0.0, 0.1, 0.2)))
    return asked


def leave_early(cluster: ClusterSession, namespace: str, chance: random.Random) -> None:
    """Delete one of the running pods, if there are any; one that was deleted before may be gone by then."""
    pods = cluster.core.list_namespaced_pod(namespace, field_selector="status.phase=Running").items
    if pods:
        with contextlib.suppress(NotFoundException):
            cluster.core.delete_namespaced_pod(chance.choice(pods).metadata.name, namespace)


def stays_of(record: Record, pods: str) -> list[Stay]:
    """Who was where, and from when to when."""
    bound: dict[str, tuple[Moment, dict[str, Any]]] = {}
    over: dict[str, Moment] = {}
    for moment, kind, made in record.events[pods]:
        uid = made["metadata"]["uid"]
        if kind != "DELETED" and made["spec"].get("nodeName"):
            bound.setdefault(uid, (moment, made))
        if kind == "DELETED" or made["status"].get("phase") in FINISHED:
            over.setdefault(uid, moment)
    unheld = last_reports(record)
    found = []
    for uid, (moment, made) in bound.items():
        ends = [over[uid], unheld[uid]] if uid in over and uid in unheld else [over[uid]] if uid in over else []
        free = max(ends, key=lambda end: end.revision, default=None)
        gpus = frozenset(made["metadata"]["annotations"][c.ANN_GPUS].split(","))
        found.append(Stay(made["metadata"]["name"], made["spec"]["nodeName"], gpus, moment, free))
    return found


def last_reports(record: Record) -> dict[str, Moment]:
    """By pod uid: the first report of its node that no longer names it."""
    holding: dict[str, set[str]] = defaultdict(set)
    unheld: dict[str, Moment] = {}
    for moment, _, made in record.events[TOPOLOGIES]:
        name = made["metadata"]["name"]
        now = {held["podUID"] for held in made.get("status", {}).get("held", ())}
        for uid in holding[name] - now:
            unheld.setdefault(uid, moment)
        holding[name] = now
    return unheld


def graphs_of(record: Record) -> dict[str, LinkGraph]:
    return {made["metadata"]["name"]: graph_from_spec(made["spec"]) for _, _, made in record.events[TOPOLOGIES]}


@pytest.fixture
def record(mixed: ClusterSession, namespace: str) -> Iterator[Record]:
    """All that happens to the namespace's pods and to all GPUTopologies."""
    recording = Record(connect(str(mixed.kubeconfig)))
    recording.follow(TOPOLOGIES)
    recording.follow(pods_of(namespace))
    yield recording
    recording.stop()


@pytest.fixture
def watching(mixed: ClusterSession) -> Iterator[HoldingWatch]:
    watch = HoldingWatch(str(mixed.kubeconfig))
    yield watch
    watch.close()


def pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def test_every_set_is_the_oracles_choice_for_what_was_free(
    mixed: ClusterSession, namespace: str, record: Record, watching: HoldingWatch
) -> None:
    asked = arrivals(mixed, namespace)

    def all_over() -> bool:
        return {one.status.phase for one in mixed.core.list_namespaced_pod(namespace).items} <= {"Succeeded"}

    eventually(all_over, f"{PODS} pods came and went")
    time.sleep(1.0)  # until the last reports are recorded as well
    assert (record.broken, watching.violations) == ([], [])
    stays, graphs = stays_of(record, pods_of(namespace)), graphs_of(record)
    assert len(stays) == PODS
    assert len({stay.node for stay in stays}) >= 4, "hardly any machine was used"
    certain = 0
    for stay in stays:
        right = right_sets(stay, stays, graphs[stay.node], *asked[stay.pod])
        assert stay.gpus in right, f"{stay} is none of {right}"
        certain += len(right) == 1
    print(f"{certain} of {PODS} sets had one right answer")
    assert certain >= PODS // 3, f"only {certain} of {PODS} sets could be compared with a single right one"


def right_sets(stay: Stay, stays: Sequence[Stay], graph: LinkGraph, gpus: int, gpu_request: GpuRequest) -> set[frozenset[str]]:
    """What core chooses, for each set of free GPUs that there may have been."""
    index: dict[str, int] = {gpu.uuid: gpu.index for gpu in graph.gpus}
    others = [other for other in stays if other.node == stay.node and other is not stay]
    choices = (choose(graph, free, gpus, gpu_request) for free in set(free_masks(stay, others, index, LAG)))
    return {frozenset(graph.gpus[i].uuid for i in choice.order) for choice in choices if isinstance(choice, Choice)}
