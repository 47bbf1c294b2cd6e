"""Which GPUs a worker's ResourceClaim was given, as they are written on its pod.

These need not be those of its plan. kube-scheduler allocates from what it last saw, and where it then finds a newer claim of the
same name it writes to that one what it had chosen for the older (Kubernetes 1.37, pkg/scheduler/framework/plugins/
dynamicresources, bindClaim). So what counts is the claim's status.
"""

import logging

from kompakt_core.contract.bound_gpus import BoundGpus
from kompakt_core.contract.plan_record import SeatRecord
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import MegabytesPerSecond
from kompakt_core.placement.given_set import in_order
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.placement_annotations import gpu_request_of
from kompakt_extender.views import PodView

_LOG = logging.getLogger(__name__)


def given_gpus(pod: PodView, seat: SeatRecord, ledger: GpuLedger) -> BoundGpus | None:
    """The GPUs of a bound pod; None where its claim is not seen allocated yet, or its node's link graph is gone."""
    if pod.node is None:
        return None
    given, topology = ledger.given_to(pod.uid, pod.node), ledger.topologies.get(pod.node)
    if len(given) != pod.gpus or topology is None or topology.graph is None:
        return None
    if (pod.node, given) == (seat.node, frozenset(seat.gpus)):
        return BoundGpus(seat.gpus, seat.indices, MegabytesPerSecond(seat.value))
    try:
        indices, value = in_order(given, topology.graph, gpu_request_of(pod.annotations))
    except (InvalidInput, KeyError):  # somebody else's annotation, or a graph that is newer than the claim
        return None
    _LOG.warning("%s/%s: its ResourceClaim was given other GPUs of %s than were planned", pod.namespace, pod.name, pod.node)
    return BoundGpus(tuple(topology.graph.gpus[index].uuid for index in indices), indices, value)
