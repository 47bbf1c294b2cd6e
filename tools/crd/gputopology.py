"""The GPUTopology resource: one per node, written by the device plugin."""

from typing import Final

from kompakt_core import contract
from kompakt_core.topology.resource import GPUTopologySpec, GPUTopologyStatus
from tools.crd.reference import ResourcePage
from tools.crd.resource import column, custom_resource, whole_object
from tools.crd.structural import Schema, structural

WHAT: Final = "GPUs of one node, their links, and the pods that hold them. Written by the node's device plugin, never by hand."
SPEC: Final = "What the node has: GPUs, links between each two of them, network cards."
STATUS: Final = "What changes while pods run: health and who holds which GPU."
NAMES: Final[Schema] = {
    "kind": contract.TOPOLOGY_KIND,
    "listKind": f"{contract.TOPOLOGY_KIND}List",
    "plural": contract.TOPOLOGY_PLURAL,
    "singular": "gputopology",
    "shortNames": ["gput"],
    "categories": ["kompakt"],
}
COLUMNS: Final = [
    column("GPUs", ".status.gpus", "integer"),
    column("Free", ".status.free", "integer"),
    column("Fabric", ".status.fabric"),
    column("Health", ".status.health"),
    column("Age", ".metadata.creationTimestamp", "date"),
]


def gputopology() -> Schema:
    """The CRD."""
    spec, status = (
        {"description": SPEC, **structural(GPUTopologySpec)},
        {"description": STATUS, **structural(GPUTopologyStatus)},
    )
    return custom_resource(NAMES, "Cluster", whole_object(WHAT, spec, status), COLUMNS)


PAGE: Final = ResourcePage(
    WHAT,
    NAMES,
    "Cluster",
    COLUMNS,
    {"spec": (SPEC, GPUTopologySpec), "status": (STATUS, GPUTopologyStatus)},
    "Where it comes from: [device plugin](../device-plugin.md).",
)
