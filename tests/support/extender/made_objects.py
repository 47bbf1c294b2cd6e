"""Pods, nodes, jobs and topologies as the API server has them, for tests of the extender."""

from collections.abc import Mapping
from typing import Any

from kompakt_core import contract as c
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.topology.machines import machine
from kompakt_core.topology.wire import graph_to_spec

RING = {c.ANN_PATTERN: "Ring", c.ANN_POLICY: "Preserve", c.ANN_SENSITIVITY: "High"}


def pod(name: str, gpus: int = 1, *, uid: str = "", annotations: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A plain pod of our scheduler that asks for GPUs. `more` goes into spec."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "annotations": dict(annotations or {})},
        "spec": {
            "schedulerName": c.SCHEDULER_NAME,
            "containers": [{"name": "trainer", "resources": {"requests": {"cpu": "1", c.RESOURCE: str(gpus)}}}],
            **more,
        },
        "status": {"phase": "Pending"},
    }


def worker(job: str, index: int, gpus: int = 2, attempt: int = 1, **more: Any) -> dict[str, Any]:
    """A gated pod of a gang, as the operator creates it."""
    made = pod(f"{job}-worker-{index}-a{attempt}", gpus, annotations=RING, schedulingGates=[{"name": c.GATE}], **more)
    made["metadata"]["labels"] = {
        c.LABEL_JOB_NAME: job,
        c.LABEL_JOB_UID: f"uid-{job}",
        c.LABEL_ROLE: "worker",
        c.LABEL_WORKER_INDEX: str(index),
        c.LABEL_ATTEMPT: str(attempt),
    }
    made["metadata"]["ownerReferences"] = [job_owner.encode(JobOwner("default", job, f"uid-{job}"))]
    return made


def gang_pod(gang: str, index: int, size: int, gpus: int = 2, **more: Any) -> dict[str, Any]:
    """A pod that a controller of others made, as it is after admission. `more` goes into spec."""
    notes = RING | {c.ANN_GANG_SIZE: str(size)}
    made = pod(f"{gang}-{index}-{'xyz'[index % 3]}", gpus, annotations=notes, schedulingGates=[{"name": c.GATE}], **more)
    made["metadata"]["labels"] = {c.LABEL_GANG: gang}
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": gang, "uid": f"uid-job-{gang}", "controller": True}]
    return made


def job(name: str, workers: int = 2, gpus: int = 2, attempt: int = 1, consolidation: Any = None) -> dict[str, Any]:
    """A TrainingJob with one role."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1},
        "spec": {
            "roles": [{"name": "worker", "replicas": workers, "gpusPerReplica": gpus}],
            "placement": {"consolidation": consolidation or {"mode": "Default"}},
        },
        "status": {"attempt": attempt},
    }


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, **status: Any) -> dict[str, Any]:
    """A ready node."""
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", c.RESOURCE: str(gpus)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}], **status},
    }


def topology(name: str, kind: str = "dgx1-v100") -> dict[str, Any]:
    """The GPUTopology of a node that is a known machine; UUIDs are GPU-<node>-<index>."""
    spec = graph_to_spec(machine(kind), node_uid=f"uid-{name}", source="text")
    for gpu in spec["gpus"]:
        gpu["uuid"] = f"GPU-{name}-{gpu['index']}"
    return {"metadata": {"name": name, "uid": f"topology-{name}"}, "spec": spec, "status": {"held": []}}
