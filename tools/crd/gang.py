"""The Gang resource: pods that others made, placed together."""

from typing import Final

from kompakt_core import contract
from kompakt_core.contract.conditions import Type
from kompakt_core.job.gang_fields import GangSpec, GangStatus
from tools.crd.reference import ResourcePage
from tools.crd.resource import column, custom_resource, whole_object
from tools.crd.structural import Schema, structural

WHAT: Final = (
    "Pods with the same label kompakt.dev/gang, which a Job, a JobSet or any other controller made: all of them get their GPUs "
    "or none does. Made by the planner when it sees the first of them, and deleted when the last one is gone."
)
SPEC: Final = "What the pods say of their gang. Written by the planner."
STATUS: Final = "What the planner has decided. Written by the planner."
NAMES: Final[Schema] = {
    "kind": contract.GANG_KIND,
    "listKind": f"{contract.GANG_KIND}List",
    "plural": contract.GANG_PLURAL,
    "singular": "gang",
    "shortNames": ["gng"],
    "categories": ["kompakt"],
}
COLUMNS: Final = [
    column("Pods", ".spec.size", "integer"),
    column("State", ".status.scheduling.state"),
    column("Level", ".status.scheduling.plan.level"),
    column("MB/s", ".status.scheduling.plan.value", "integer"),
    column("Placed", f'.status.conditions[?(@.type=="{Type.PLACED}")].reason'),
    column("Message", f'.status.conditions[?(@.type=="{Type.PLACED}")].message', priority=1),
    column("Age", ".metadata.creationTimestamp", "date"),
]


def gang() -> Schema:
    """The CRD."""
    spec, status = structural(GangSpec), structural(GangStatus)
    schema = whole_object(WHAT, {"description": SPEC, **spec}, {"description": STATUS, **status})
    return custom_resource(NAMES, "Namespaced", schema, COLUMNS)


PAGE: Final = ResourcePage(
    WHAT,
    NAMES,
    "Namespaced",
    COLUMNS,
    {"spec": (SPEC, GangSpec), "status": (STATUS, GangStatus)},
    "How pods become a gang: [gangs of others](../gangs.md).",
)
