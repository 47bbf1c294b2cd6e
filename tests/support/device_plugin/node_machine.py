"""One node on which everything happens in any order: users, API server, watch, kubelet, processes, and the plugin's own restarts.

The plugin's parts are the real ones, from kubelet's two calls to the journal's file; kubelet, API server, processes are played.
The rules of kubelet are those of its device manager (kubernetes, pkg/kubelet/cm/devicemanager/manager.go): before it gives GPUs
to a pod it forgets the pods that have ended or that the API server does not know any more, whatever their processes do.
"""

import shutil
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kompakt_core import contract
from kompakt_core.contract import gpu_holders
from kompakt_core.contract.claimed_devices import ClaimedDevice
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.describe import read_description
from kompakt_device_plugin.allocations import STARTING_SECONDS, Allocations, StillRunning
from kompakt_device_plugin.podresources import NO_DEVICES
from kompakt_device_plugin.pods import NodePods, read_pod
from kompakt_device_plugin.reconcile import holders
from tests.support.device_plugin.api import pod_object
from tests.support.device_plugin.kubelet import NODE, Calls, Direct, Parts

GRAPH = read_description("dgx1-v100", NODE)
GPUS = tuple(gpu.uuid for gpu in GRAPH.gpus)
NAMES = tuple("abcd")
PICK = st.integers(0, 1 << 16)
MEMORY = Path("/dev/shm")
Key = tuple[str, str]


class Node(RuleBasedStateMachine):
    """`used`: the GPUs of living processes, by uid of their pod, whoever knows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kp-", dir=MEMORY if MEMORY.is_dir() else None))
        self.now, self.count, self.version = 1000.0, 0, 0
        self.api: dict[str, dict[str, Any]] = {}  # by uid
        self.news: deque[tuple[str, dict[str, Any]]] = deque()  # what the watch has not shown yet
        self.used: dict[str, frozenset[str]] = {}
        self.given: dict[Key, frozenset[str]] = {}  # what kubelet has noted down
        self.owner: dict[Key, str] = {}  # the uid that it means
        self.silent = False  # kubelet has just started, and lists no pods yet
        self.waiting: list[str] = []  # uids that kubelet has not admitted yet
        self.report: tuple[Any, ...] = ()  # status.held, as it stands in the cluster
        self.written: dict[str, frozenset[str]] = {}  # by uid
        self.listed: set[str] = set()  # uids that kubelet listed when the plugin last looked and was told
        self.start_plugin()

    # The plugin

    def start_plugin(self) -> None:
        """A new process: it knows what stands in the cluster and in its file, and looks once before it offers anything."""
        self.parts = parts = Parts(self.folder)
        parts.pods = NodePods(lambda: self.now)
        parts.journal.load()
        parts.pods.replace(self.api.values())
        self.news.clear()
        parts.devices.publish(GRAPH)
        still = StillRunning(parts.pods, lambda uids: [uid for uid in uids if uid in self.used])
        still.unseen_for = STARTING_SECONDS
        self.allocations = Allocations(self, parts.pods, parts.devices, parts.journal, still)  # type: ignore[arg-type]
        self.call = Calls(Direct(parts.servicer(lambda: parts.pods.add(self.api.values()), alive=still)))
        self.look()

    def taken(self, claimed: Mapping[ClaimedDevice, GpuUuid] = NO_DEVICES) -> dict[Key, frozenset[str]]:
        """As kubelet's list."""
        return {} if self.silent else {key: gpus for key, gpus in self.given.items() if gpus}

    def look(self) -> None:
        """One round of the plugin."""
        handed, pods = self.parts.journal.entries, self.parts.pods.all()
        live = {"status": {"held": gpu_holders.encode(self.report)}}
        found = self.allocations.look(live, pods, handed)
        self.report = self.allocations.held or ()
        assert not self.allocations.rival(contract.RESOURCE), "nobody else serves kompakt.dev/gpu"
        self.parts.devices.hold(holders(found, pods), (pod.uid for pod in pods))

    @rule()
    def plugin_looks(self) -> None:
        self.look()
        held = {one.uuid for one in self.report}
        for uid, gpus in self.used.items():
            assert gpus <= held or not self.is_known(uid), f"{uid} uses {sorted(gpus - held)}, and nobody is told"
        if not self.silent:
            self.listed = set(self.used)

    def is_known(self, uid: str) -> bool:
        """Whether anybody can tell what it has: kubelet does or did, or it has what was written on it. A pod that got another
        one's set is found out by kubelet's list alone.
        """
        listed = not self.silent and uid in self.owner.values()
        return listed or uid in self.listed or self.written[uid] == self.used[uid]

    @rule()
    def plugin_restarts(self) -> None:
        assert self.parts.journal.flush(5.0)
        known = {(one.pod_uid, one.uuid) for one in self.report}
        known |= {(entry.pod_uid, uuid) for entry in self.parts.journal.entries for uuid in entry.gpus}
        for uid in [uid for uid in self.used if uid not in self.api]:
            if any((uid, gpu) not in known for gpu in self.used[uid]):
                del self.used[uid]  # nothing tells the new process of it: it ends
        self.start_plugin()

    # Users, the scheduler and the watch

    @rule(size=st.integers(1, 3), name=st.sampled_from(NAMES), gpus=st.permutations(GPUS))
    def scheduler_binds_a_pod(self, size: int, name: str, gpus: list[str]) -> None:
        """With GPUs that are free as far as the cluster knows."""
        written = {gpu for pod in self.api.values() for gpu in read_pod(pod).gpus if not read_pod(pod).finished}
        free = [gpu for gpu in gpus if gpu not in written | {one.uuid for one in self.report}]
        if len(free) >= size and not any(pod["metadata"]["name"] == name for pod in self.api.values()):
            self.count += 1
            uid = f"uid-{self.count}"
            self.written[uid] = frozenset(free[:size])
            self.put(pod_object(name, size, tuple(free[:size]), uid=uid))
            self.waiting.append(uid)

    @rule(size=st.integers(1, 3), name=st.sampled_from(NAMES), gpus=st.permutations(GPUS), looks=st.booleans())
    def a_pod_comes_and_runs(self, size: int, name: str, gpus: list[str], looks: bool) -> None:
        """All goes as it mostly does; `looks`: and the plugin sees it."""
        self.scheduler_binds_a_pod(size, name, gpus)
        self.watch_delivers(len(self.news))
        while self.waiting:
            self.kubelet_admits_the_oldest_pod(False)
        if looks:
            self.plugin_looks()

    def put(self, pod: dict[str, Any]) -> None:
        kind = "MODIFIED" if pod["metadata"]["uid"] in self.api else "ADDED"
        self.version += 1
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        self.api[pod["metadata"]["uid"]] = pod
        self.news.append((kind, pod))

    def remove(self, uid: str) -> None:
        self.news.append(("DELETED", self.api.pop(uid)))
        self.waiting = [one for one in self.waiting if one != uid]

    @rule(count=st.integers(1, 4))
    def watch_delivers(self, count: int) -> None:
        for _ in range(min(count, len(self.news))):
            self.parts.pods.event(*self.news.popleft())

    @precondition(lambda self: self.used)
    @rule(pick=PICK)
    def a_pod_finishes(self, pick: int) -> None:
        uid = sorted(self.used)[pick % len(self.used)]
        del self.used[uid]
        if uid in self.api:
            self.end(uid, "Succeeded")

    def end(self, uid: str, phase: str) -> None:
        pod = self.api[uid]
        self.put({**pod, "status": {"phase": phase}})

    @precondition(lambda self: self.api)
    @rule(pick=PICK)
    def user_deletes_a_pod_by_force(self, pick: int) -> None:
        """Of one that runs the processes live on."""
        self.remove(sorted(self.api)[pick % len(self.api)])

    @rule(seconds=st.sampled_from([0.2, 2.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # kubelet

    def forget_inactive(self) -> None:
        for key, uid in [*self.owner.items()]:
            if uid not in self.api or read_pod(self.api[uid]).finished:
                del self.given[key], self.owner[key]

    @precondition(lambda self: self.waiting)
    @rule(ends=st.booleans())
    def kubelet_admits_the_oldest_pod(self, ends: bool) -> None:
        """`ends`: it ends after Allocate, before it has noted anything down or started the container.

        One that has just started may ask for any pod once more, and lists none: a pod of which the watch has not told yet that it
        ended would be taken for the one that asks. Kubelet needs a second to start, and the watch is faster.
        """
        if self.silent:
            self.watch_delivers(len(self.news))
        uid = self.waiting[0]
        pod = read_pod(self.api[uid])
        self.forget_inactive()
        free = tuple(gpu for gpu in GPUS if not any(gpu in gpus for gpus in self.given.values()))
        if pod.size > len(free):
            self.refuse(uid)
            return
        asked = self.call.prefer(free, pod.size)
        chosen = tuple(dict.fromkeys([*(gpu for gpu in asked if gpu in free), *free]))[: pod.size]
        try:
            self.call.allocate(chosen)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            self.refuse(uid)
            return
        if ends:
            self.kubelet_starts_anew_or_lists_again(True)
            return
        self.waiting.pop(0)
        self.given[pod.key], self.owner[pod.key] = frozenset(chosen), uid
        self.used[uid] = frozenset(chosen)

    def refuse(self, uid: str) -> None:
        self.waiting = [one for one in self.waiting if one != uid]
        self.end(uid, "Failed")

    @rule(silent=st.booleans())
    def kubelet_starts_anew_or_lists_again(self, silent: bool) -> None:
        """A kubelet that starts has the plugin register with it, which looks as soon as that kubelet lists pods."""
        self.silent = silent
        if silent:  # also one that starts before the one before it has listed any pod
            self.parts.devices.kubelet_came()
        else:
            self.look()

    # What must hold

    @invariant()
    def no_gpu_is_used_by_two_pods(self) -> None:
        used = [gpu for gpus in self.used.values() for gpu in gpus]
        assert len(used) == len(set(used)), self.used

    @invariant()
    def the_report_names_each_gpu_once(self) -> None:
        named = [one.uuid for one in self.report]
        assert len(named) == len(set(named))

    def all_ends_and_nothing_is_left(self) -> None:
        for uid in [*self.api]:
            self.remove(uid)
        self.used.clear()
        self.watch_delivers(len(self.news))
        self.forget_inactive()
        self.silent, self.now = False, self.now + 10.0
        for _ in range(2):
            self.look()
        assert self.report == ()
        assert self.parts.journal.entries == ()
        assert not self.parts.devices.orphaned
        assert self.parts.pods.gone() == ()

    def teardown(self) -> None:
        try:
            self.all_ends_and_nothing_is_left()
        finally:
            self.parts.journal.flush(5.0)
            shutil.rmtree(self.folder)
