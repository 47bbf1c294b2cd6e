"""The TrainingJob resource: its declared fields with the pod template's schema, names and printer columns."""

from typing import Final

from kompakt_core import contract
from kompakt_core.contract.conditions import Type
from kompakt_core.job.model import TrainingJobSpec
from kompakt_core.job.rules import JOB_NAME_RULE
from kompakt_core.job.status_fields import NOT_SEEN, TrainingJobStatus
from tools.crd.reference import ResourcePage
from tools.crd.resource import column, custom_resource, whole_object
from tools.crd.structural import Schema, ruled, structural

WHAT: Final = (
    "A training in PyTorch as one gang of worker pods: all of them get their GPUs or none does, and when one fails all start "
    "again from their checkpoint."
)
SPEC: Final = "What is to run, on which GPUs, and what happens when a pod fails."
STATUS: Final = "What became of the job. Written by the operator and, in scheduling, by the planner."
NAMES: Final[Schema] = {
    "kind": contract.JOB_KIND,
    "listKind": f"{contract.JOB_KIND}List",
    "plural": contract.JOB_PLURAL,
    "singular": "trainingjob",
    "shortNames": ["tj"],
    "categories": ["all", "kompakt"],
}
COLUMNS: Final = [
    column("Phase", ".status.phase"),
    column("Level", ".status.scheduling.plan.level"),
    column("GPUs", ".status.gpus", "integer"),
    column("Ratio", ".status.compression.ratio"),
    column("Restarts", ".status.restarts", "integer"),
    column("Attempt", ".status.attempt", "integer", priority=1),
    column("Peak bytes", ".status.compression.peakBytes", "integer", priority=1),
    column("Plain peak", ".status.compression.plainPeakBytes", "integer", priority=1),
    column("Overhead %", ".status.compression.overheadPercent", priority=1),
    column("Batch", ".status.batch.size", "integer", priority=1),
    column("MB/s", ".status.scheduling.plan.value", "integer", priority=1),
    column("Nodes", ".status.nodes", priority=1),
    column("Placed", f'.status.conditions[?(@.type=="{Type.PLACED}")].reason', priority=1),
    column("Last restart", ".status.lastRestart.reason", priority=1),
    column("Age", ".metadata.creationTimestamp", "date"),
]


def trainingjob(template: Schema) -> Schema:
    """The CRD; `template` is the pod template's schema."""
    schema = whole_object(WHAT, _spec(template), _status()) | ruled((JOB_NAME_RULE,))
    return custom_resource(NAMES, "Namespaced", schema, COLUMNS)


def _spec(template: Schema) -> Schema:
    spec = structural(TrainingJobSpec)
    fields = spec["properties"]["roles"]["items"]["properties"]
    fields["template"] = {"description": fields["template"]["description"], **template}
    return {"description": SPEC, **spec}


def _status() -> Schema:
    # Without the default kstatus (helm --wait, Flux, Argo CD) takes a job that no operator has seen yet for finished.
    return {"description": STATUS, **structural(TrainingJobStatus), "default": {"observedGeneration": NOT_SEEN}}


PAGE: Final = ResourcePage(
    WHAT,
    NAMES,
    "Namespaced",
    COLUMNS,
    {"spec": (SPEC, TrainingJobSpec), "status": (STATUS, TrainingJobStatus)},
    "What the fields mean together: [TrainingJob](../trainingjob.md).",
)
