"""Worker pods as the operator sees them, and why one failed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.contract import bound_gpus, worker_labels
from kompakt_core.job.model import FailureAction, FailureRule

NODE_REASONS: Final = frozenset({"NodeLost", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "Preempted"})
# Reasons with which a kubelet refuses a pod before any container starts (pkg/kubelet/lifecycle).
ADMISSION_REASONS: Final = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "NodeName", "TopologyAffinityError")
# Reasons of containers whose end nobody saw; their code is made up. containerd finds one gone when it, or its machine, comes back
# (255; containerd issue 3873); kubelet, whose runtime does not know one any more (137; kubernetes pkg/kubelet, status manager).
UNSEEN_REASONS: Final = frozenset({"Unknown", "ContainerStatusUnknown"})
# Why a container waits and will go on waiting unless somebody does something (kubernetes, pkg/kubelet/images and kuberuntime).
# The first two follow each other in turn, so they are told by the same words.
PULL_REASONS: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
STUCK_REASONS: Final = PULL_REASONS | {
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}


class Cause(StrEnum):
    """Why a pod is no longer doing its work."""

    DISRUPTION = "Disruption"  # deleted by others, node lost, preempted
    PLACEMENT = "PlacementFailure"  # the node refused it before any container started
    FAIL_JOB = "PodFailurePolicy"  # a rule says that the job fails
    IGNORED = "IgnoredExitCode"  # a rule says that this failure does not count
    PREEMPTED = "Preempted"  # the planner asked that the gang ends for another one
    QUOTA_LOST = "QuotaLost"  # Kueue lets the job run no more
    FAILURE = "WorkerFailed"


COUNTED: Final = frozenset({Cause.FAILURE})


@dataclass(frozen=True, slots=True)
class Exit:
    """A container that ended with a code other than 0; the code of an end that nobody saw says nothing of the program."""

    container: str
    code: int
    seen: bool = True


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """What decisions need of one worker pod.

    `disrupted`: why somebody had it end (a DisruptionTarget's reason), unless it had ended before by itself. A program that saves
    its work when it is told to end, and exits with 0, has not done its work: kubelet shows an evicted pod of such as Succeeded.
    `node_lost`: it is being deleted on a node that is not Ready. `unhealthy`: what is wrong with a GPU of it. `stuck`: which of
    its containers cannot start, and why. `version` grows with each write of the pod.
    """

    name: str
    uid: str
    attempt: int
    role: str
    worker_index: int
    phase: str = "Pending"
    node: str = ""
    gated: bool = False
    deleting: bool = False
    ready: bool = False
    started: bool = False
    exits: tuple[Exit, ...] = ()
    reason: str = ""
    message: str = ""
    disrupted: str = ""
    gpus: tuple[str, ...] = ()
    gpu_indices: str = ""
    reports: tuple[str, ...] = ()
    finished_at: str = ""
    node_lost: bool = False
    unhealthy: str = ""
    stuck: str = ""
    version: int = 0
    ip: str = ""

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def succeeded(self) -> bool:
        """Whether it has done its work."""
        return self.phase == "Succeeded" and not self.disrupted


def read_pod(obj: Mapping[str, Any]) -> WorkerPod | None:
    """A pod object as a view; None for a pod that is no worker of a TrainingJob (labels missing or malformed)."""
    meta, spec, status = (obj.get(part) or {} for part in ("metadata", "spec", "status"))
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    attempt, index = worker_labels.attempt(labels), worker_labels.worker_index(labels)
    if attempt is None or index is None or not worker_labels.role(labels):
        return None
    containers, before = status.get("containerStatuses") or [], status.get("initContainerStatuses") or []
    ended = [(c["name"], c["state"]["terminated"]) for c in containers if (c.get("state") or {}).get("terminated")]
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    finished_at = max((state.get("finishedAt") or "" for _, state in ended), default="")
    return WorkerPod(
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        attempt=attempt,
        role=worker_labels.role(labels),
        worker_index=index,
        phase=status.get("phase") or "Pending",
        node=spec.get("nodeName") or "",
        gated=any(gate.get("name") == contract.GATE for gate in spec.get("schedulingGates") or ()),
        deleting=bool(meta.get("deletionTimestamp")),
        ready=(conditions.get("Ready") or {}).get("status") == "True",
        started=any(_has_started(c) for c in [*containers, *before]),
        exits=tuple(_exit(name, state) for name, state in ended if state.get("exitCode")),
        reason=status.get("reason") or "",
        message=(status.get("message") or "")[:512],
        disrupted=_disrupted(conditions.get("DisruptionTarget") or {}, status.get("phase") == "Succeeded", finished_at),
        gpus=bound_gpus.uuids(notes),
        gpu_indices=bound_gpus.readable_indices(notes),
        reports=tuple(state["message"] for _, state in ended if state.get("message")),
        finished_at=finished_at,
        stuck=next(filter(None, map(_stuck, [*before, *containers])), ""),
        version=version_of(meta),
        ip=status.get("podIP") or "",
    )


def _disrupted(condition: Mapping[str, Any], succeeded: bool, finished_at: str) -> str:
    """Both moments are RFC 3339 in UTC with whole seconds. In the same second the disruption counts as the earlier one."""
    if condition.get("status") != "True" or (succeeded and finished_at < condition.get("lastTransitionTime", "")):
        return ""
    return str(condition.get("reason", "Disrupted"))


def version_of(metadata: Mapping[str, Any]) -> int:
    """An object's (or a list's) resourceVersion as a number; 0 where it is none.

    From Kubernetes 1.35 on resource versions may be compared as whole numbers (KEP-5504).
    """
    text = str(metadata.get("resourceVersion", ""))
    return int(text) if text.isascii() and text.isdecimal() else 0


def _has_started(container: Mapping[str, Any]) -> bool:
    state = container.get("state") or {}
    return bool("running" in state or "terminated" in state or container.get("lastState"))


def _stuck(container: Mapping[str, Any]) -> str:
    reason = ((container.get("state") or {}).get("waiting") or {}).get("reason", "")
    if reason not in STUCK_REASONS:
        return ""
    what = f"cannot pull {container.get('image', 'its image')}" if reason in PULL_REASONS else f"cannot start ({reason})"
    return f"container {container['name']} {what}"


def _exit(container: str, terminated: Mapping[str, Any]) -> Exit:
    return Exit(container, terminated["exitCode"], terminated.get("reason") not in UNSEEN_REASONS)


def why_failed(pod: WorkerPod, rules: Iterable[FailureRule]) -> Cause | None:
    """Why a pod of the current attempt stopped working, first match; None while nothing is wrong.

    Pods of older attempts were deleted by the operator itself and are never asked about.
    """
    if pod.succeeded:
        return None
    if pod.disrupted or pod.deleting or pod.unhealthy or pod.reason in NODE_REASONS:
        return Cause.DISRUPTION
    if pod.phase != "Failed":
        return None
    if not pod.started and (pod.reason.startswith(ADMISSION_REASONS) or not pod.exits):
        return Cause.PLACEMENT
    return _by_exit_code(pod, rules)


def _by_exit_code(pod: WorkerPod, rules: Iterable[FailureRule]) -> Cause:
    causes = {
        FailureAction.FAIL_JOB: Cause.FAIL_JOB,
        FailureAction.IGNORE: Cause.IGNORED,
        FailureAction.RESTART_GANG: Cause.FAILURE,
    }
    seen = [end for end in pod.exits if end.seen]
    if pod.exits and not seen:
        return Cause.DISRUPTION
    for rule in rules:
        if any(rule.matches(end.container, end.code) for end in seen):
            return causes[rule.action]
    return Cause.FAILURE


def told(pod: WorkerPod) -> str:
    """One sentence about a pod that stopped working."""
    if pod.disrupted or pod.deleting:
        return f"pod {pod.name} was disrupted: {pod.disrupted or 'it was deleted'}"
    if pod.unhealthy:
        return f"pod {pod.name} on node {pod.node} has an unhealthy GPU: {pod.unhealthy}"
    codes = ", ".join(map(_said, pod.exits))
    return f"pod {pod.name} failed: {codes or pod.message or pod.reason or 'no reason given'}"


def _said(end: Exit) -> str:
    if end.seen:
        return f"container {end.container} ended with exit code {end.code}"
    return f"container {end.container} ended while its machine or container runtime was away"
