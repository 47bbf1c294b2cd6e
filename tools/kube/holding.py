"""The one invariant, watched: no GPU is ever held by two pods.

A watch delivers every version of every pod in the order of the writes, so a moment in which two pods hold one GPU
cannot pass unseen, however short it was.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from kompakt_core.contract import GATE, bound_gpus, planned_seat
from tools.kube.plugin_changes import FINISHED, PluginChanges

REJOIN_SECONDS = 0.2
TURN_SECONDS = 1  # how long one watch lasts, and so how long `close` may take


@dataclass(frozen=True, slots=True)
class PodGpus:
    """What one pod holds: GPUs as UUIDs. `planned` GPUs are those of a released pod that is not bound yet; `corrected`: they are
    others than it was bound with, since kubelet gave it these.
    """

    pod: str
    gpus: frozenset[str]
    planned: bool
    corrected: bool = False


def holder(pod: dict[str, Any]) -> PodGpus | None:
    """What a pod holds, None where it holds nothing (finished, gated, or without GPUs)."""
    metadata, spec = pod["metadata"], pod["spec"]
    if pod.get("status", {}).get("phase") in FINISHED:
        return None
    annotations = metadata.get("annotations") or {}
    gated = any(gate["name"] == GATE for gate in spec.get("schedulingGates") or ())
    bound = bool(spec.get("nodeName"))
    gpus = (bound_gpus.uuids if bound else planned_seat.gpus)(annotations)
    if gated or not gpus:
        return None
    return PodGpus(f"{metadata['namespace']}/{metadata['name']}", frozenset(gpus), not bound)


@dataclass(slots=True)
class PodHistory:
    """When a pod was first seen, what it was bound with, how far its node's plugin was then, and when that set was corrected.

    Moments are numbers of events. A correction is excused where kubelet had reason to give another set than was written.
    """

    came: int
    given: frozenset[str] | None = None
    plugin_count: int = 0
    corrected: int = 0
    excused: bool = False


class GpuHolders:
    """Who holds what by the last version of each pod; `violations` grows by a sentence for each GPU held twice.

    A plan that kubelet crossed is none: what it gives a bound pod in spite of the annotation may be planned for a pod that is not
    bound yet. Truth wins, and bind refuses that plan. It is excused where the node's device plugin was being replaced between
    binding and correction, and where `crossing` says that kubelets are killed; and only for pods that were there before the
    correction, since the planner hears of both in one order. Were the plan carried out, two bound pods would hold one GPU, which
    always counts.
    """

    def __init__(self) -> None:
        self.crossing = False
        self.violations: list[str] = []
        self.crossed: list[str] = []
        self._events = 0
        self._plugins = PluginChanges()
        self._holders: dict[str, PodGpus] = {}
        self._histories: dict[str, PodHistory] = {}

    def see(self, kind: str, pod: dict[str, Any]) -> None:
        """Take in one version of one pod."""
        self._events += 1
        self._plugins.see(kind, pod)
        uid = pod["metadata"]["uid"]
        self._histories.setdefault(uid, PodHistory(self._events))
        now = None if kind == "DELETED" else holder(pod)
        self._holders.pop(uid, None)
        if now is None:
            return
        if not now.planned:
            now = replace(now, corrected=self._corrected(self._histories[uid], now.gpus, pod["spec"]["nodeName"]))
        for other_uid, other in self._holders.items():
            self._compare((now, self._histories[uid]), (other, self._histories[other_uid]))
        self._holders[uid] = now

    def forget(self) -> None:
        """All pods come anew, from a list."""
        self._holders.clear()
        self._plugins.forget()

    def _corrected(self, history: PodHistory, gpus: frozenset[str], node: str) -> bool:
        """Whether a bound pod has other GPUs than it was bound with; the first time, whether that is excused is noted."""
        if history.given is None:
            history.given, history.plugin_count = gpus, self._plugins.count(node)
        if history.given != gpus and not history.corrected:
            history.corrected = self._events
            history.excused = self.crossing or self._plugins.replaced_since(node, history.plugin_count)
        return history.given != gpus

    def _compare(self, one: tuple[PodGpus, PodHistory], other: tuple[PodGpus, PodHistory]) -> None:
        if both := one[0].gpus & other[0].gpus:
            crossed = _crosses(one, other) or _crosses(other, one)
            (self.crossed if crossed else self.violations).append(f"{one[0]} and {other[0]} both hold {sorted(both)}")


def _crosses(one: tuple[PodGpus, PodHistory], other: tuple[PodGpus, PodHistory]) -> bool:
    """Whether the second, as kubelet corrected it, crosses a plan for the first, and that is excused."""
    (plan, its), (real, history) = one, other
    return plan.planned and real.corrected and history.excused and its.came < history.corrected


@dataclass
class HoldingWatch:
    """Follows all pods from the moment it is made.

    A watch that breaks is a violation as well, since nothing is known then. Where the API server itself is killed,
    `rejoins` makes it list anew instead; `gaps` counts how often, and only what stood there at both ends is known of those.
    """

    kubeconfig: str
    rejoins: bool = False
    events: int = 0
    gaps: int = 0
    holders: GpuHolders = field(default_factory=GpuHolders)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._api = config.new_client_from_config(self.kubeconfig)
        self._core = client.CoreV1Api(self._api)
        self._version = self._list()
        self._thread = threading.Thread(target=self._follow, name="holding-watch")
        self._thread.start()

    @property
    def violations(self) -> list[str]:
        """A sentence for each GPU held twice, and for a watch that broke."""
        return self.holders.violations

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._api.close()
        self._api.rest_client.pool_manager.clear()

    def _list(self) -> str:
        """Take in all pods as they stand now; the version of that list."""
        listed = self._api.sanitize_for_serialization(self._core.list_pod_for_all_namespaces())
        self.holders.forget()
        for pod in listed["items"]:
            self._see("ADDED", pod)
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                problem = self._turn()
            except (HTTPError, client.ApiException) as error:
                problem = f"{type(error).__name__}: {error}"
            if problem and self.rejoins:
                self._rejoin()
            elif problem:
                self.holders.violations.append(f"the watch broke, so nothing is known: {problem}")
                return

    def _rejoin(self) -> None:
        """List anew as soon as the API server answers."""
        self.gaps += 1
        while not self._stop.wait(REJOIN_SECONDS):
            try:
                self._version = self._list()
            except (HTTPError, client.ApiException):
                continue
            return

    def _see(self, kind: str, pod: dict[str, Any]) -> None:
        self.events += 1
        self.holders.see(kind, pod)

    def _turn(self) -> str:
        """Follow one watch to its end; what it broke of, "" for nothing."""
        for event in self._stream():
            if event["type"] == "ERROR":
                return str(event["raw_object"])
            self._version = event["raw_object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._see(event["type"], event["raw_object"])
        return ""

    def _stream(self) -> Iterator[Any]:
        pods = self._core.list_pod_for_all_namespaces
        return iter(watch.Watch().stream(pods, resource_version=self._version, timeout_seconds=TURN_SECONDS))
