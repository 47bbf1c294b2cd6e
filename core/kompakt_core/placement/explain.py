"""Refusals as sentences for people. Same refusal, same words: a changing text would make kube-scheduler retry at once."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kompakt_core.placement.model import Reason, Rejection


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _gigabytes(count: int) -> str:
    return f"{count / 1000:.1f} GB/s"


def _never_fits(refusal: Rejection) -> str:
    if refusal.detail == "worker":
        return f"one worker asks for {_gpus(refusal.need)} but the largest node has {refusal.have}; ask for at most that many"
    if refusal.detail == "gang":
        return f"all workers together ask for {_gpus(refusal.need)} but the cluster has {refusal.have}"
    return (
        "not even the empty cluster could hold all workers: node selectors, taints, requiredLink, sameNUMANode or "
        "requiredLevel leave too few nodes"
    )


def _not_now(refusal: Rejection) -> str:
    if refusal.detail:
        return f"there is room for all workers now, but not within the level {refusal.detail}; the gang waits"
    return f"{refusal.have} of {refusal.need} workers would find a place now; the gang waits for all"


def _too_many(refusal: Rejection) -> str:
    has = f"the node has {_gpus(refusal.have)}"
    if refusal.detail == "edges":
        return f"{has}; custom edges are matched on at most {refusal.need}"
    if refusal.detail == "mapa2021":
        return f"{has}; MAPA's rules score every order of every set, here on at most {refusal.need}"
    return f"{has}; patterns are matched on at most {refusal.need}, beyond only where links form a hierarchy"


_SENTENCES: Final[Mapping[Reason, Callable[[Rejection], str]]] = MappingProxyType(
    {
        Reason.NO_TOPOLOGY: lambda _: "the node has no GPUTopology: the kompakt device plugin has not reported its GPUs",
        Reason.STALE_TOPOLOGY: lambda _: (
            "the node's GPUTopology is out of date; it counts again when the device plugin renews it"
        ),
        Reason.UNREPORTED_POD: lambda _: "a pod was bound here past kompakt; the device plugin must report its GPUs first",
        Reason.NODE_NOT_READY: lambda _: "the node is not ready",
        Reason.CORDONED: lambda _: "the node is cordoned",
        Reason.TAINTED: lambda refusal: f"the node has the taint {refusal.detail}, which the pod does not tolerate",
        Reason.SELECTOR: lambda _: "the node's labels do not match the pod's nodeSelector or required node affinity",
        Reason.EXCLUDED: lambda _: "the node refused this job a short while ago and is left out for ten minutes",
        Reason.CPU: lambda refusal: f"{refusal.need} millicores of CPU are needed, {refusal.have} are free",
        Reason.MEMORY: lambda refusal: f"{refusal.need} bytes of memory are needed, {refusal.have} are free",
        Reason.PODS: lambda _: "the node runs as many pods as it may",
        Reason.NOT_ENOUGH_GPUS: lambda refusal: f"{_gpus(refusal.need)} asked for, {refusal.have} free",
        Reason.VALUE_TOO_LOW: lambda refusal: (
            f"the best free set reaches {_gigabytes(refusal.have)}, the job's plan needs {_gigabytes(refusal.need)}"
        ),
        Reason.LINK_TOO_WEAK: lambda refusal: (
            f"no {_gpus(refusal.need)} among the {refusal.have} free ones can do the pattern over {refusal.detail} alone"
        ),
        Reason.NUMA_SPLIT: lambda refusal: f"no {_gpus(refusal.need)} among the {refusal.have} free ones share a known NUMA node",
        Reason.TOO_FEW_RANKS: lambda refusal: (
            f"the edges name rank {refusal.need - 1} but the pod has {_gpus(refusal.have)}, numbered from 0"
        ),
        Reason.PARTITION_SPLIT: lambda refusal: (
            f"NVLink joins the GPUs of a fabric partition only, and no partition of {_gpus(refusal.need)} is free"
        ),
        Reason.MAPA_BLOCKED: lambda refusal: (
            f"MAPA's published rules rate every set of {_gpus(refusal.need)} among the {refusal.have} free ones below taking none"
        ),
        Reason.TOO_MANY_GPUS: _too_many,
        Reason.NEVER_FITS: _never_fits,
        Reason.DOES_NOT_FIT_NOW: _not_now,
    }
)


def sentence(refusal: Rejection) -> str:
    """One sentence without the node's name and without a full stop, the same for the same refusal."""
    return _SENTENCES[refusal.reason](refusal)
