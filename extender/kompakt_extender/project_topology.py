"""From GPUTopologies to what the caches keep of them."""

import hashlib
import logging
from dataclasses import replace
from typing import Any

import msgspec

from kompakt_core.contract import gpu_holders
from kompakt_core.contract.conditions import ConditionReason, TopologyType, read_conditions
from kompakt_core.contract.gpu_holders import HolderReport
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.wire import graph_from_spec
from kompakt_extender.objects import Topology
from kompakt_extender.project import node_name
from kompakt_extender.views import TopologyView

_LOG = logging.getLogger(__name__)
_TOPOLOGY = msgspec.json.Decoder(Topology)


def held_gpus(holders: HolderReport) -> tuple[tuple[GpuUuid, PodUid], ...]:
    """What the device plugin reports as held: (GPU, pod)."""
    return tuple((one.uuid, one.pod_uid) for one in holders.held)


def is_counted(topology: Topology) -> bool:
    """Not where the node's agent says that others hand out the GPUs."""
    found = read_conditions(topology.status.conditions).get(TopologyType.CONFLICT)
    return found is None or found.reason != ConditionReason.REPORT_ONLY


def topology_view(topology: Topology, holders: HolderReport) -> TopologyView:
    """The projection of a GPUTopology."""
    held, raw, counted = held_gpus(holders), bytes(topology.spec), is_counted(topology)
    name = node_name(topology.metadata.name)
    try:
        spec = msgspec.json.decode(raw, type=dict[str, Any])
        graph = graph_from_spec(spec)
    except (InvalidInput, msgspec.DecodeError) as error:
        return TopologyView(name, "", None, str(error), 0, held, holders.complete, counted)
    healthy = sum(gpu.health == "Healthy" for gpu in graph.gpus)
    return TopologyView(name, str(spec.get("nodeUID", "")), graph, "", healthy, held, holders.complete, counted)


class TopologyReader:
    """Reads GPUTopologies; the status changes with every pod, the link graph hardly ever, so graphs are kept.

    Machines of one kind share one list of links: 5,000 nodes have a handful of them.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, TopologyView]] = {}
        self._links: dict[str, LinkGraph] = {}
        self._flaws: dict[str, tuple[str, ...]] = {}

    def __call__(self, raw: bytes) -> TopologyView:
        topology = _TOPOLOGY.decode(raw)
        holders = gpu_holders.readable(topology.status.held)
        self._log(topology, holders)
        fingerprint = hashlib.blake2b(bytes(topology.spec)).digest()
        seen, view = self._known.get(topology.metadata.name, (b"", None))
        if view is not None and seen == fingerprint:
            held, counted = held_gpus(holders), is_counted(topology)
            return msgspec.structs.replace(view, held=held, holders_known=holders.complete, counted=counted)
        view = self._shared(topology_view(topology, holders))
        self._known[topology.metadata.name] = (fingerprint, view)
        return view

    def forget(self, name: str) -> None:
        """This GPUTopology is gone. Called from another thread: what is read meanwhile is read anew the next time at worst."""
        self._known.pop(name, None)
        self._flaws.pop(name, None)
        used = {view.graph.digest for _, view in tuple(self._known.values()) if view.graph is not None}
        for digest in self._links.keys() - used:
            self._links.pop(digest, None)

    def _log(self, topology: Topology, holders: HolderReport) -> None:
        """Flaws are logged when they appear and when they change, not with every status that still has them."""
        if holders.flaws != self._flaws.get(topology.metadata.name, ()):
            self._flaws[topology.metadata.name] = holders.flaws
            for flaw in holders.flaws:
                _LOG.error("GPUTopology %s: %s", topology.metadata.name, flaw)

    def _shared(self, view: TopologyView) -> TopologyView:
        if view.graph is None:
            return view
        like = self._links.setdefault(view.graph.digest, view.graph)
        return msgspec.structs.replace(view, graph=replace(view.graph, links=like.links))
