"""The pods of a node, as far as GPUs go: what each asks for, and which GPUs are written on it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kompakt_core import contract
from kompakt_core.contract import bound_gpus, gpu_lists, placement_annotations
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_core.placement.gpu_request import gpu_request
from kompakt_core.placement.model import GpuRequest

_Found = TypeVar("_Found")
_FINISHED = frozenset({"Succeeded", "Failed"})
_MAX_GONE = 1024


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod bound to a node that asks for GPUs. `gpus` = those written on it, in pattern order; () where none are."""

    uid: PodUid
    namespace: str
    name: str
    node: NodeName
    size: int
    gpus: tuple[GpuUuid, ...] = ()
    created: str = ""  # RFC 3339, as the API server wrote it
    version: int = 0  # resourceVersion; pods' versions compare as numbers (Kubernetes KEP-5504)
    finished: bool = False
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, as kubelet speaks of pods."""
        return self.namespace, self.name

    @property
    def written(self) -> str:
        """The annotation from which `gpus` was read, in one line."""
        text = bound_gpus.one_line(self.annotations)
        return gpu_lists.encode_uuids(self.gpus) if text is None else text

    @property
    def gpu_request(self) -> GpuRequest:
        """How the pod wants its GPUs chosen; what cannot be read counts as absent, since the pod is bound already."""
        return gpu_request(placement_annotations.readable(self.annotations))


@dataclass(frozen=True, slots=True)
class Gone:
    """A pod that was deleted before anybody saw it finish, and how many seconds ago that was."""

    pod: NodePod
    seconds: float


def read_pod(obj: Mapping[str, Any], resource: str = contract.RESOURCE) -> NodePod:
    """The GPU side of a pod object as the API server sends it; `resource`: by which name it asks for GPUs."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    notes = meta.get("annotations") or {}
    return NodePod(
        uid=PodUid(meta["uid"]),
        namespace=meta["namespace"],
        name=meta["name"],
        node=NodeName(spec.get("nodeName") or ""),
        size=sum(_gpus_of(container, resource) for container in spec.get("containers") or []),
        gpus=bound_gpus.uuids(notes),
        version=int(meta.get("resourceVersion") or 0),
        created=meta.get("creationTimestamp") or "",
        finished=(obj.get("status") or {}).get("phase") in _FINISHED,
        deleting="deletionTimestamp" in meta,
        annotations={key: notes[key] for key in contract.INPUT_ANNOTATIONS | contract.OUTPUT_ANNOTATIONS if key in notes},
    )


def _gpus_of(container: Mapping[str, Any], resource: str) -> int:
    """GPUs that a container asks for; the API server demands that limits and requests of such a resource are equal."""
    wanted = ((container.get("resources") or {}).get("limits") or {}).get(resource, "0")
    return int(wanted) if str(wanted).isdecimal() else 0


class NodePods:
    """The pods known so far, oldest on the node first; filled by a watch, read and added to by others at the same time.

    Oldest on the node is what kubelet admits first: within one list by creation, afterwards by arrival.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, resource: str = contract.RESOURCE) -> None:
        """`clock` gives monotonic seconds; pods ask for GPUs by the name of that resource."""
        self._lock, self._clock, self._resource = threading.Condition(), clock, resource
        self._pods: dict[PodUid, NodePod] = {}
        self._ended: deque[PodUid] = deque(maxlen=1024)  # finished, then deleted
        self._gone: dict[PodUid, tuple[NodePod, float]] = {}  # and when
        self._deleted: deque[PodUid] = deque(maxlen=1024)  # what a list that overlapped the deletion must not bring back

    def replace(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """These are all pods there are; those known before keep their place."""
        found = {pod.uid: pod for pod in self._read(objects)}
        with self._lock:
            self._missed(pod for uid, pod in self._pods.items() if uid not in found)
            self._pods = {uid: pod for uid, pod in self._pods.items() if uid in found}
            self._take(found.values())

    def add(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """These were there a moment ago, as a list beside the watch says."""
        with self._lock:
            self._take(self._read(objects))

    def event(self, kind: str, obj: Mapping[str, Any]) -> NodePod | None:
        """One event of the watch; the pod it was about, None where that pod is none of ours."""
        pod = next(self._read([obj]), None)
        if pod is None:
            return None
        with self._lock:
            if kind == "DELETED":
                self._deleted.append(pod.uid)
                self._pods.pop(pod.uid, None)
                self._missed([pod])
                if pod.finished:
                    self._ended.append(pod.uid)
            else:
                self._take([pod])
        return pod

    def all(self) -> tuple[NodePod, ...]:
        """The pods at this moment, oldest first."""
        with self._lock:
            return tuple(self._pods.values())

    def ended(self) -> frozenset[PodUid]:
        """The pods that were seen to finish."""
        with self._lock:
            return frozenset(self._ended).union(pod.uid for pod in self._pods.values() if pod.finished)

    def gone(self) -> tuple[Gone, ...]:
        """The pods that the API server forgot although they had not finished, until they are forgotten here too."""
        with self._lock:
            return tuple(Gone(pod, self._clock() - since) for pod, since in self._gone.values())

    def forget(self, uids: Iterable[PodUid]) -> None:
        """The end of these is known."""
        with self._lock:
            for uid in uids:
                self._gone.pop(uid, None)

    def wait(
        self, found: Callable[[tuple[NodePod, ...]], _Found | None], seconds: float, over: Callable[[], bool]
    ) -> _Found | None:
        """What `found` finds among the pods, as soon as it does; None after `seconds`, or once it is `over` (call wake then)."""
        with self._lock:
            self._lock.wait_for(lambda: found(tuple(self._pods.values())) is not None or over(), seconds)
            return found(tuple(self._pods.values()))

    def wake(self) -> None:
        """Lets everybody who waits look again."""
        with self._lock:
            self._lock.notify_all()

    def _read(self, objects: Iterable[Mapping[str, Any]]) -> Iterator[NodePod]:
        """Those of a node that ask for GPUs."""
        found = (read_pod(obj, self._resource) for obj in objects)
        return (pod for pod in found if pod.size and pod.node)

    def _succeed(self, pod: NodePod) -> None:
        """A pod of the same name that came earlier is deleted, though nobody has told so yet: names are given once at a time."""
        earlier = [one for one in self._pods.values() if one.key == pod.key and one.uid != pod.uid and one.version < pod.version]
        for one in earlier:
            del self._pods[one.uid]
            self._deleted.append(one.uid)
        self._missed(earlier)

    def _missed(self, pods: Iterable[NodePod]) -> None:
        now = self._clock()
        self._gone.update({pod.uid: (pod, now) for pod in pods if not pod.finished})
        for uid in list(self._gone)[:-_MAX_GONE]:
            del self._gone[uid]

    def _take(self, pods: Iterable[NodePod]) -> None:
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.key)):
            known = self._pods.get(pod.uid)
            if pod.uid not in self._deleted and (known is None or pod.version >= known.version):
                self._succeed(pod)
                self._pods[pod.uid] = pod
                self._gone.pop(pod.uid, None)  # a list from before its creation had left it out
        self._lock.notify_all()
