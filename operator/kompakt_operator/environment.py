"""Environment of a worker's containers: who they are in the gang. A value in the template wins over ours."""

from typing import Any

from kompakt_core import contract
from kompakt_core.contract import downward
from kompakt_core.job.batches import Batch
from kompakt_core.job.model import Role, TrainingJob
from kompakt_core.job.object_names import service_name

Variables = list[dict[str, Any]]


def value(name: str, text: object) -> dict[str, Any]:
    return {"name": name, "value": str(text)}


def rank(name: str) -> dict[str, Any]:
    """The node rank that the planner writes on the pod before it may start."""
    return {"name": name, "valueFrom": downward.encode(contract.ANN_RANK)}


def worker_name(job: TrainingJob, role: Role, index: int) -> str:
    """A worker's hostname; the same in every attempt. `index` counts within the role."""
    return f"{job.name}-{role.name}-{index}"


def gpu_roles(job: TrainingJob) -> list[Role]:
    return [role for role in job.roles if role.gpus_per_replica]


def common(job: TrainingJob, attempt: int, batch: Batch | None = None) -> Variables:
    """For every container: where rank 0 is, which attempt this is, and its batch where batches are raised."""
    first = gpu_roles(job)[0]
    master = f"{worker_name(job, first, 0)}.{service_name(job.name, attempt)}"
    return [
        *(value(name, master) for name in (contract.ENV_MASTER_ADDR, contract.ENV_TORCHRUN_MASTER_ADDR)),
        *(value(name, contract.MASTER_PORT) for name in (contract.ENV_MASTER_PORT, contract.ENV_TORCHRUN_MASTER_PORT)),
        value(contract.ENV_ATTEMPT, attempt),
        *([value(contract.ENV_BATCH_SIZE, batch.size)] if batch else []),
    ]


def training(job: TrainingJob, role: Role) -> Variables:
    """For the GPU container: torchrun's options by its PET_ names; RANK itself where one process per pod needs no torchrun."""
    roles = gpu_roles(job)
    nodes = sum(r.replicas for r in roles)
    found = [
        value(contract.ENV_NNODES, nodes),
        rank(contract.ENV_NODE_RANK),
        value(contract.ENV_NPROC_PER_NODE, role.gpus_per_replica),
    ]
    if all(r.gpus_per_replica <= 1 for r in roles):
        found += [rank(contract.ENV_RANK), value(contract.ENV_WORLD_SIZE, nodes), value(contract.ENV_LOCAL_RANK, 0)]
    return found


def without_gpus() -> Variables:
    """Images that ask for all GPUs by themselves get none in containers that were given none."""
    return [value(contract.ENV_NVIDIA_VISIBLE, contract.NO_GPUS)]


def added(container: dict[str, Any], variables: Variables) -> Variables:
    """The container's environment with ours before it, so that its own values may refer to ours; its own values win."""
    own = list(container.get("env") or ())
    names = {variable["name"] for variable in own}
    return [variable for variable in variables if variable["name"] not in names] + own
