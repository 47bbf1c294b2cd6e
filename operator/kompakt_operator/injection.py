"""The start-up hook in a worker's GPU container: an init container copies the runtime into an emptyDir on PYTHONPATH.

Nothing of the image or of the user's command changes. What other injectors were blamed for is avoided: the init
container satisfies Pod Security "restricted", has explicit small resources, the emptyDirs have limits, and a PYTHONPATH
that cannot be read here is never overwritten.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.job.batches import Batch, BatchState
from kompakt_core.job.model import ActivationGradients, CompressionMode, Role, TrainingJob

BOOTSTRAP: Final = f"{contract.INJECT_PAYLOAD_PATH}/bootstrap"
USER: Final = 65532  # the image's own; any other than root would do
PAYLOAD_LIMIT: Final = "64Mi"  # the payload is pure Python of well under 1 MiB; a tight limit would evict
STATE_LIMIT: Final = "16Mi"  # one small file per rank
RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}


def wanted(job: TrainingJob, role: Role) -> bool:
    """Whether this role's pods get the start-up hook."""
    return role.gpus_per_replica > 0 and job.injects


def serves(job: TrainingJob, role: Role) -> bool:
    """Whether this role's pods may serve figures: on a node's own network the port would be the node's, and two would want it."""
    return wanted(job, role) and not role.template["spec"].get("hostNetwork")


def obstacle(container: Mapping[str, Any]) -> str:
    """Why the hook cannot be put on this container's PYTHONPATH without overwriting something; "" if it can."""
    own = next((v for v in container.get("env") or () if v.get("name") == "PYTHONPATH"), None)
    way_out = "write the value itself in env, or set injection: Never"
    if own is not None and "valueFrom" in own:
        return f"PYTHONPATH of container {container['name']} comes from valueFrom, which kompakt cannot read: {way_out}"
    if own is None and container.get("envFrom"):
        return f"container {container['name']} has envFrom, which may hold a PYTHONPATH that kompakt cannot read: {way_out}"
    return ""


def environment(
    job: TrainingJob, *, port: bool, batch: Batch | None = None, gradients: ActivationGradients | None = None
) -> list[dict[str, Any]]:
    """What the runtime reads. `port`: whether it may serve its figures; `batch`: where batches are raised; `gradients`: where
    the mode may have errors in those of activations.
    """
    compression = job.compression
    overrides = [{"modules": o.modules, "mode": str(o.mode)} for o in compression.overrides]
    values = {
        contract.ENV_MODE: str(compression.mode),
        contract.ENV_TARGET: compression.target,
        contract.ENV_OVERRIDES: json.dumps(overrides),
        contract.ENV_MIN_TENSOR_BYTES: str(compression.min_tensor_bytes),
        contract.ENV_ACTIVATION_GRADIENTS: str(gradients or ActivationGradients.EXACT),
        contract.ENV_OFFLOAD: str(compression.offload),
        contract.ENV_MEMORY_BUDGET: compression.memory_budget,
        contract.ENV_FAILURE_POLICY: str(compression.failure_policy),
        contract.ENV_BATCH: "Measure" if batch and batch.state is BatchState.MEASURING else str(compression.batch_size),
        contract.ENV_STATE_DIR: contract.INJECT_STATE_PATH,
        contract.ENV_PROGRESS_FILE: contract.PROGRESS_FILE,
        contract.ENV_METRICS_PORT: str(contract.METRICS_PORT if port else 0),
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def python_path(before: str) -> str:
    """The start-up hook's folder first, then what the template says."""
    return f"{BOOTSTRAP}:{before}" if before else BOOTSTRAP


def init_container(image: str) -> dict[str, Any]:
    """Copies the payload; its own image, read-only, no rights."""
    return {
        "name": contract.INJECT_INIT_CONTAINER,
        "image": image,
        "command": ["/payload/install", contract.INJECT_PAYLOAD_PATH],
        "resources": RESOURCES,
        "env": [{"name": contract.ENV_NVIDIA_VISIBLE, "value": contract.NO_GPUS}],
        "volumeMounts": [{"name": contract.INJECT_PAYLOAD_VOLUME, "mountPath": contract.INJECT_PAYLOAD_PATH}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def volumes() -> list[dict[str, Any]]:
    return [
        {"name": contract.INJECT_PAYLOAD_VOLUME, "emptyDir": {"sizeLimit": PAYLOAD_LIMIT}},
        {"name": contract.INJECT_STATE_VOLUME, "emptyDir": {"sizeLimit": STATE_LIMIT}},
    ]


def mounts() -> list[dict[str, Any]]:
    return [
        {"name": contract.INJECT_PAYLOAD_VOLUME, "mountPath": contract.INJECT_PAYLOAD_PATH, "readOnly": True},
        {"name": contract.INJECT_STATE_VOLUME, "mountPath": contract.INJECT_STATE_PATH},
    ]


def skipped(job: TrainingJob, role: Role, container: Mapping[str, Any]) -> str:
    """Why a job without compression goes without the hook; with compression the same words refuse the job."""
    if not wanted(job, role) or job.compression.mode is not CompressionMode.NONE:
        return ""
    return obstacle(container)
