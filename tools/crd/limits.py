"""The Limits resource: what administrators let jobs ask for."""

from typing import Final

from kompakt_core import contract
from kompakt_core.job.limits import LimitsSpec
from tools.crd.reference import ResourcePage
from tools.crd.resource import column, custom_resource, whole_object
from tools.crd.structural import Schema, structural

WHAT: Final = (
    "What jobs and plain pods of some namespaces and PriorityClasses may ask for, and whom they may preempt. "
    "Written by administrators."
)
SPEC: Final = "Whose jobs are meant, the most that they may ask for, and which rights they have."
NAMES: Final[Schema] = {
    "kind": contract.LIMITS_KIND,
    "listKind": f"{contract.LIMITS_KIND}List",
    "plural": contract.LIMITS_PLURAL,
    "singular": "joblimit",
    "shortNames": ["jlim"],
    "categories": ["kompakt"],
}
COLUMNS: Final = [
    column("Workers", ".spec.maxWorkers", "integer"),
    column("GPUs", ".spec.maxGPUs", "integer"),
    column("Edges", ".spec.maxEdges", "integer"),
    column("Min-Runtime", ".spec.maxMinRuntimeSeconds", "integer"),
    column("Grace", ".spec.maxGracePeriodSeconds", "integer"),
    column("Wait", ".spec.maxConsolidationWaitSeconds", "integer"),
    column("Age", ".metadata.creationTimestamp", "date"),
]


def limits() -> Schema:
    """The CRD; nobody writes a status."""
    made = custom_resource(NAMES, "Cluster", whole_object(WHAT, {"description": SPEC, **structural(LimitsSpec)}, {}), COLUMNS)
    (version,) = made["spec"]["versions"]
    del version["subresources"], version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return made


PAGE: Final = ResourcePage(
    WHAT,
    NAMES,
    "Cluster",
    COLUMNS,
    {"spec": (SPEC, LimitsSpec)},
    "What they are for: [security](../security.md#limits-by-the-administrator).",
)
