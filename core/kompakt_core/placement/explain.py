"""Rejections as sentences for people, each with what to do.

Same rejection, same words: a changing text would make kube-scheduler retry at once.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kompakt_core.placement.cures import CURES
from kompakt_core.placement.model import Reason, Rejection


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _gigabytes(count: int) -> str:
    return f"{count / 1000:.1f} GB/s"


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _never_fits(rejection: Rejection) -> str:
    if rejection.detail == "worker":
        return f"one worker asks for {_gpus(rejection.need)} but the largest node has {rejection.have}"
    if rejection.detail == "gang":
        return f"all workers together ask for {_gpus(rejection.need)} but the cluster has {rejection.have}"
    return (
        "not even the empty cluster could hold all workers: node selectors, taints, requiredLink, sameNUMANode or "
        "requiredLevel leave too few nodes"
    )


def _not_now(rejection: Rejection) -> str:
    if rejection.detail:
        return (
            f"there is room for all workers now, but not within the level {rejection.detail}, the requiredLevel: the gang waits"
        )
    return f"{rejection.have} of {rejection.need} workers would find a place now; the gang waits for all"


def _too_many(rejection: Rejection) -> str:
    has = f"the node has {_gpus(rejection.have)}"
    if rejection.detail == "edges":
        return f"{has}; custom edges are matched on at most {rejection.need}"
    if rejection.detail == "mapa2021":
        return f"{has}; MAPA's rules score every order of every set, here on at most {rejection.need}"
    return f"{has}; patterns are matched on at most {rejection.need}, beyond only where links form a hierarchy"


_SENTENCES: Final[Mapping[Reason, Callable[[Rejection], str]]] = MappingProxyType(
    {
        Reason.NO_TOPOLOGY: lambda _: "the node has no GPUTopology: the kompakt device plugin has not reported its GPUs",
        Reason.STALE_TOPOLOGY: lambda _: (
            "the node's GPUTopology is out of date: it counts again when the device plugin renews it"
        ),
        Reason.UNREADABLE_HOLDER: lambda _: (
            "an entry of status.held in the node's GPUTopology names no GPU: any may be held until that entry is gone"
        ),
        Reason.UNREPORTED_POD: lambda _: "a pod was bound here past kompakt: the device plugin must report its GPUs first",
        Reason.NODE_NOT_READY: lambda _: "the node is not ready",
        Reason.CORDONED: lambda _: "the node is cordoned",
        Reason.TAINTED: lambda rejection: f"the node has the taint {rejection.detail}, which the pod does not tolerate",
        Reason.SELECTOR: lambda _: "the node's labels do not match the pod's nodeSelector or required node affinity",
        Reason.EXCLUDED: lambda _: "the node refused this job a short while ago and is left out for ten minutes",
        Reason.CPU: lambda rejection: f"{rejection.need / 1000:g} CPUs are needed, {rejection.have / 1000:g} are free",
        Reason.MEMORY: lambda rejection: f"{_bytes(rejection.need)} of memory are needed, {_bytes(rejection.have)} are free",
        Reason.PODS: lambda _: "the node runs as many pods as it may",
        Reason.NOT_ENOUGH_GPUS: lambda rejection: f"{_gpus(rejection.need)} asked for, {rejection.have} free",
        Reason.MACHINE_TOO_SMALL: lambda rejection: (
            f"{_gpus(rejection.need)} asked for, but this machine has {rejection.have} in all"
        ),
        Reason.RESERVED: lambda rejection: (
            f"{_gpus(rejection.need)} asked for, {rejection.have} free; others are reserved: kept for a gang that waits for them"
        ),
        Reason.VALUE_TOO_LOW: lambda rejection: (
            f"the best free set reaches {_gigabytes(rejection.have)}, the job's plan needs {_gigabytes(rejection.need)}"
        ),
        Reason.LINK_TOO_WEAK: lambda rejection: (
            f"no {_gpus(rejection.need)} among the {rejection.have} free ones can do the pattern over {rejection.detail} alone"
        ),
        Reason.NUMA_SPLIT: lambda rejection: (
            f"no {_gpus(rejection.need)} among the {rejection.have} free ones share a known NUMA node"
        ),
        Reason.TOO_FEW_RANKS: lambda rejection: (
            f"the edges name rank {rejection.need - 1} but the pod has {_gpus(rejection.have)}, numbered from 0"
        ),
        Reason.NOT_WEIGHED: lambda _: (
            "the pod's custom edges were not compared with the node's links in the time that they may take"
        ),
        Reason.PARTITION_SPLIT: lambda rejection: (
            f"NVLink joins the GPUs of a fabric partition only, and no partition of {_gpus(rejection.need)} is free"
        ),
        Reason.MAPA_BLOCKED: lambda rejection: (
            f"MAPA's published rules rate every set of {_gpus(rejection.need)} among the {rejection.have} free ones "
            "below taking none"
        ),
        Reason.TOO_MANY_GPUS: _too_many,
        Reason.NOT_PLANNED: lambda _: "the pod's plan names another node",
        Reason.PLANNED_TAKEN: lambda _: "the planned GPUs are no longer free here",
        Reason.UNKNOWN_NODE: lambda _: "the node is not known yet",
        Reason.NO_PLAN: lambda _: (
            "the pod belongs to a TrainingJob but has no plan: only the planner may remove its scheduling gate"
        ),
        Reason.WITHDRAWN: lambda _: "the plan of the pod's gang was withdrawn",
        Reason.NO_GPUS: lambda _: "the pod asks for no GPUs",
        Reason.BEYOND_LIMITS: lambda rejection: rejection.detail,
        Reason.INVALID_REQUEST: lambda rejection: f"the pod's request cannot be served: {rejection.detail}",
        Reason.BOUND_ELSEWHERE: lambda rejection: f"the pod is bound to {rejection.detail} already",
        Reason.PLUGIN_BEHIND: lambda _: "the node's device plugin has not reported an earlier pod of the same size yet",
        Reason.OUTCOME_UNKNOWN: lambda rejection: f"it is not known what became of the write: {rejection.detail}",
        Reason.BINDING_REFUSED: lambda rejection: f"the API server refused the binding: {rejection.detail}",
        Reason.POD_UNREADABLE: lambda rejection: f"the pod could not be read: {rejection.detail}",
        Reason.POD_GONE: lambda _: "the pod is gone",
        Reason.POD_REPLACED: lambda _: "the pod was replaced by another one of the same name",
        Reason.NOT_SENT: lambda rejection: f"nothing was written: {rejection.detail}",
        Reason.NEVER_FITS: _never_fits,
        Reason.DOES_NOT_FIT_NOW: _not_now,
    }
)


def sentence(rejection: Rejection) -> str:
    """One sentence without the node's name and without a full stop, the same for the same rejection."""
    return f"{_SENTENCES[rejection.reason](rejection)}; {CURES[rejection.reason]}"
