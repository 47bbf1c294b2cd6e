"""Whether a node takes a worker by the rules of Kubernetes' own scheduler that the planner respects.

Readiness, cordon, taints, nodeSelector and required node affinity, CPU, memory and pod count; the rest (affinity
between pods, spreading, volumes) is left to kube-scheduler. Semantics: kubernetes.io, "Assigning Pods to Nodes" and
"Taints and Tolerations".
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from kompakt_core.placement.model import Gang, NodeState, Reason, Rejection, Selector, Taint, Toleration, Worker
from kompakt_core.topology.graph import LinkGraph

UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})  # PreferNoSchedule is a preference


def node_rejection(state: NodeState, worker: Worker, gang: Gang | None) -> Rejection | None:
    """Why this node cannot take the worker now, or None. Of several reasons always the same one: in the order below."""
    for rule in (_readiness, _labels, _resources, _gpus):
        if rejection := rule(state, worker):
            return rejection
    if gang is not None and state.name in gang.excluded:
        return Rejection(Reason.EXCLUDED, state.name)
    return None


def _readiness(state: NodeState, worker: Worker) -> Rejection | None:
    if not state.ready:
        return Rejection(Reason.NODE_NOT_READY, state.name)
    if state.unschedulable and not tolerated(UNSCHEDULABLE, worker):
        return Rejection(Reason.CORDONED, state.name)
    for taint in state.taints:
        if taint.effect in _BLOCKING and not tolerated(taint, worker):
            return Rejection(Reason.TAINTED, state.name, detail=taint.key)
    return None


def _labels(state: NodeState, worker: Worker) -> Rejection | None:
    if selected(state.labels, worker):
        return None
    return Rejection(Reason.SELECTOR, state.name)


def _resources(state: NodeState, worker: Worker) -> Rejection | None:
    if state.free_pods < 1:
        return Rejection(Reason.PODS, state.name, have=max(state.free_pods, 0), need=1)
    if state.free_cpu_millis < worker.cpu_millis:
        return Rejection(Reason.CPU, state.name, have=max(state.free_cpu_millis, 0), need=worker.cpu_millis)
    if state.free_memory_bytes < worker.memory_bytes:
        return Rejection(Reason.MEMORY, state.name, have=max(state.free_memory_bytes, 0), need=worker.memory_bytes)
    return None


def _gpus(state: NodeState, worker: Worker) -> Rejection | None:
    if worker.gpus == 0:
        return None
    if state.problem is not None:
        return Rejection(state.problem, state.name)
    if state.graph is None:
        return Rejection(Reason.NO_TOPOLOGY, state.name)
    found = shortage(state.graph, state.free, worker.gpus)
    if found is None:
        return None
    reason = Reason.RESERVED if reserved_would_do(state, worker.gpus) else found.reason
    return replace(found, reason=reason, node=state.name)


def shortage(graph: LinkGraph, free: int, need: int) -> Rejection | None:
    """Why `need` GPUs cannot be had of a machine of which these are free, or None. To wait helps only if it has so many."""
    if need > graph.size:
        return Rejection(Reason.MACHINE_TOO_SMALL, have=graph.size, need=need)
    return Rejection(Reason.NOT_ENOUGH_GPUS, have=free.bit_count(), need=need) if free.bit_count() < need else None


def reserved_would_do(state: NodeState, need: int) -> bool:
    """Whether enough GPUs would be free if none were reserved for others."""
    return state.free.bit_count() + state.kept >= need


def tolerated(taint: Taint, worker: Worker) -> bool:
    """Whether one of the worker's tolerations matches the taint."""
    return any(_tolerates(toleration, taint) for toleration in worker.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)


def selected(labels: Mapping[str, str], worker: Worker) -> bool:
    """Whether nodeSelector and required node affinity (any term, all requirements of it) accept these labels."""
    if any(labels.get(key) != value for key, value in worker.node_selector.items()):
        return False
    # A term without requirements matches no node.
    return not worker.affinity or any(term and all(_matches(one, labels) for one in term) for term in worker.affinity)


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None


def _compares(found: str | None, values: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    """Gt and Lt: both sides must be integers, and exactly one value be given."""
    if found is None or len(values) != 1:
        return False
    left, right = _integer(found), _integer(values[0])
    return left is not None and right is not None and holds(left, right)


_OPERATORS: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, values: found is not None,
    "DoesNotExist": lambda found, values: found is None,
    "Gt": lambda found, values: _compares(found, values, lambda left, right: left > right),
    "Lt": lambda found, values: _compares(found, values, lambda left, right: left < right),
}


def _matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """An unknown operator matches nothing: the API server refuses it before we could meet it."""
    operator = _OPERATORS.get(selector.operator)
    return operator is not None and operator(labels.get(selector.key), selector.values)
