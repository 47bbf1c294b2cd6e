"""The places of a gang as they stand in status.scheduling.plan.

A plan names GPUs by their indices on the node: the UUIDs of 8,192 GPUs would be 0.35 MB, and etcd takes 1.5 MiB as one object.
Whoever reads it looks up which GPUs these are; `gpusDigest` tells whether the nodes still have the GPUs that were planned.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from kompakt_core.contract import gpu_lists, timestamps
from kompakt_core.ids import GpuIndex, GpuUuid, NodeName, PodUid


@dataclass(frozen=True, slots=True)
class SeatRecord:
    """One pod's place: node, GPUs in pattern order, MB/s, rank. `gpus`: empty until somebody has looked up what `indices` are."""

    uid: PodUid
    node: NodeName
    gpus: tuple[GpuUuid, ...]
    indices: tuple[GpuIndex, ...]
    value: int
    rank: int


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """All places of a gang, in order of ranks. `released_at`: RFC 3339, UTC. `digest`: of the GPUs of `gpu_nodes`; empty in a
    plan of an earlier version, which names GPUs by UUIDs alone.
    """

    level: str
    value: int
    ideal: int
    released_at: str
    pods: tuple[SeatRecord, ...]
    digest: str = ""

    @property
    def gpu_nodes(self) -> frozenset[NodeName]:
        """Those on which pods have GPUs: the digest is of these, since others need not have a GPUTopology."""
        return frozenset(seat.node for seat in self.pods if seat.indices)

    def looked_up(self, gpus: Mapping[NodeName, Sequence[GpuUuid]]) -> "PlanRecord | None":
        """The same with the UUIDs, if these are the GPUs that the nodes had when it was made."""
        if not self.digest:
            return self
        nodes = self.gpu_nodes
        here = {node: gpus[node] for node in nodes if node in gpus}
        if len(here) < len(nodes) or digest_of(here) != self.digest:
            return None
        if any(index >= len(here[seat.node]) for seat in self.pods for index in seat.indices):
            return None
        seats = (replace(seat, gpus=tuple(here[seat.node][index] for index in seat.indices)) for seat in self.pods)
        return replace(self, pods=tuple(seats))


def digest_of(gpus: Mapping[NodeName, Sequence[GpuUuid]]) -> str:
    """Another one where a node has other GPUs, or has them at other indices."""
    text = "\n".join(f"{node} {','.join(uuids)}" for node, uuids in sorted(gpus.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def encode(plan: PlanRecord) -> dict[str, Any]:
    """As it is written, without what follows from the rest: a value that is the plan's, a rank that is the place's number."""
    written = {"level": plan.level, "value": plan.value, "ideal": plan.ideal, "releasedAt": plan.released_at}
    if not plan.digest:
        return written | {"pods": [_by_uuids(seat) for seat in plan.pods]}
    by_node: dict[NodeName, list[SeatRecord]] = {}  # in order of the first rank on each
    for seat in plan.pods:
        by_node.setdefault(seat.node, []).append(seat)
    places = count()
    nodes = [{"name": node, "pods": [_by_indices(seat, plan, next(places)) for seat in seats]} for node, seats in by_node.items()]
    return written | {"gpusDigest": plan.digest, "nodes": nodes}


def _by_indices(seat: SeatRecord, plan: PlanRecord, place: int) -> dict[str, Any]:
    found: dict[str, Any] = {"uid": seat.uid}
    if seat.indices:
        found["gpus"] = gpu_lists.encode_indices(seat.indices)
    if seat.value != plan.value:
        found["value"] = seat.value
    return found if seat.rank == place else found | {"rank": seat.rank}


def _by_uuids(seat: SeatRecord) -> dict[str, Any]:
    return {"uid": seat.uid, "node": seat.node, "gpus": list(seat.gpus), "value": seat.value, "rank": seat.rank}


def decode(plan: Mapping[str, Any]) -> PlanRecord:
    """Raises KeyError, ValueError, TypeError, AttributeError or InvalidInput for anything that is never written."""
    value, digest = int(plan.get("value", 0)), str(plan.get("gpusDigest", ""))
    seats = _from_nodes(plan.get("nodes", ()), value) if digest else map(_from_uuids, plan.get("pods", ()))
    released = timestamps.canonical(plan["releasedAt"], "releasedAt")
    ordered = tuple(sorted(seats, key=lambda seat: seat.rank))
    return PlanRecord(str(plan["level"]), value, int(plan.get("ideal", 0)), released, ordered, digest)


def _from_nodes(nodes: Iterable[Mapping[str, Any]], value: int) -> Iterable[SeatRecord]:
    pods = ((NodeName(str(node["name"])), pod) for node in nodes for pod in node["pods"])
    for place, (node, pod) in enumerate(pods):
        indices = gpu_lists.decode_indices(str(pod.get("gpus", "")), "plan.nodes[].pods[].gpus")
        yield SeatRecord(PodUid(str(pod["uid"])), node, (), indices, int(pod.get("value", value)), int(pod.get("rank", place)))


def _from_uuids(pod: Mapping[str, Any]) -> SeatRecord:
    gpus = tuple(GpuUuid(str(uuid)) for uuid in pod.get("gpus", ()))
    return SeatRecord(PodUid(str(pod["uid"])), NodeName(str(pod["node"])), gpus, (), int(pod.get("value", 0)), int(pod["rank"]))
