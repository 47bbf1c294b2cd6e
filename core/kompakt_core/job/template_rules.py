"""What a role's pod template may not say, each with the sentence its author reads.

`kompakt submit` refuses such a job. The API server takes it, since a schema cannot say these; the operator then ends it with the
condition Failed/InvalidTemplate.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job.model import BatchSize, Role, TrainingJob
from kompakt_core.schema.words import FieldError, together

# Extended resources by which other plugins hand out GPUs.
FOREIGN_GPUS: Final = ("nvidia.com/", "amd.com/gpu", "gpu.intel.com/")
SHARED: Final = ("nvidia.com/mig-", "nvidia.com/gpu.shared")
OURS: Final = frozenset({contract.INJECT_PAYLOAD_VOLUME, contract.INJECT_STATE_VOLUME, "kompakt-shm"})


# Each worker is an object in etcd, which takes 1.5 MiB at most and 2 GiB in all unless told otherwise.
TEMPLATE_AT_MOST: Final = 128 << 10  # bytes as JSON
GANG_AT_MOST: Final = 64 << 20  # of all workers' templates


def check(job: TrainingJob) -> None:
    """Raises FieldError for what in any role's template the operator cannot turn into a worker; its `every` has all of it."""
    _check_sizes(job)
    raises = job.compression.batch_size is BatchSize.RAISE
    found = [f"spec.roles[{i}].template.{one}" for i, role in enumerate(job.roles) for one in problems(role, raises)]
    if found:
        raise together([FieldError(*one.split(": ", 1)) for one in found])


def _check_sizes(job: TrainingJob) -> None:
    sizes = [len(msgspec.json.encode(role.template)) for role in job.roles]
    for i, size in enumerate(sizes):
        if size > TEMPLATE_AT_MOST:
            raise InvalidInput(
                f"spec.roles[{i}].template: has {size} bytes as JSON, and pods are made of at most {TEMPLATE_AT_MOST}: move what "
                "is long into the image, a ConfigMap or a volume, and long lists of nodes into a label of the nodes"
            )
    total = sum(size * role.replicas for size, role in zip(sizes, job.roles, strict=True))
    if total > GANG_AT_MOST:
        raise InvalidInput(
            f"spec.roles: the templates times their replicas are {total} bytes, and a gang may have at most {GANG_AT_MOST}: make "
            "the templates shorter (files belong into the image, a ConfigMap or a volume), or the workers fewer"
        )


def problems(role: Role, raises: bool = False) -> Iterator[str]:
    """Everything wrong with one template; each begins with the path inside it. `raises`: its batch is kompakt's to say."""
    ours = contract.RUNTIME_ENV | ({contract.ENV_BATCH_SIZE} if raises else set())
    pod = role.template["spec"]
    yield from _pod_problems(pod)
    for kind in ("initContainers", "containers"):
        for i, container in enumerate(pod.get(kind) or ()):
            found = _container_problems(container, ours, init=kind == "initContainers")
            yield from (f"spec.{kind}[{i}].{problem}" for problem in found)
    names = [container["name"] for container in pod["containers"]]
    if role.gpu_container and role.gpu_container not in names:
        yield f"spec.containers: gpuContainer names {role.gpu_container!r}; the containers are {', '.join(names)}"


def _pod_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    if pod.get("nodeName"):
        yield "spec.nodeName: kompakt chooses the node; use nodeSelector or affinity to narrow the choice"
    if pod.get("schedulerName", contract.SCHEDULER_NAME) != contract.SCHEDULER_NAME:
        yield f"spec.schedulerName: workers are placed by {contract.SCHEDULER_NAME}; leave it out"
    if pod.get("restartPolicy", "Never") != "Never":
        yield "spec.restartPolicy: must be Never or left out; a failed worker restarts the whole gang (runPolicy.backoffLimit)"
    for name in ("hostname", "subdomain"):
        if pod.get(name):
            yield f"spec.{name}: is set by kompakt, so that workers find each other; leave it out"
    for volume in pod.get("volumes") or ():
        if volume.get("name") in OURS:
            yield f"spec.volumes: the name {volume['name']!r} is kompakt's own; choose another"


def _container_problems(container: Mapping[str, Any], ours: frozenset[str], *, init: bool) -> Iterator[str]:
    resources = container.get("resources") or {}
    for part in ("limits", "requests"):
        for name in resources.get(part) or {}:
            if name.startswith(SHARED):
                yield f"resources.{part}: {name}: MIG and time-slicing are not supported in v1alpha1"
            elif name == contract.RESOURCE or name.startswith(FOREIGN_GPUS):
                yield f"resources.{part}: {name}: ask for GPUs with the role's gpusPerReplica"
    if container.get("restartPolicy", "Never") != "Never" and not (init and container["restartPolicy"] == "Always"):
        yield "restartPolicy: must be Never or left out: a failed worker restarts the whole gang (restartPolicyRules may differ)"
    if container.get("name") == contract.INJECT_INIT_CONTAINER:
        yield f"name: {contract.INJECT_INIT_CONTAINER!r} is kompakt's own; choose another"
    for variable in container.get("env") or ():
        if variable.get("name") in ours:
            yield f"env: {variable['name']} is written by kompakt from the TrainingJob; leave it out"
        elif variable.get("name") == contract.ENV_NVIDIA_VISIBLE and variable.get("value") != contract.NO_GPUS:
            yield (
                f"env: {contract.ENV_NVIDIA_VISIBLE} asks NVIDIA's container runtime for GPUs past Kubernetes; leave it out: a "
                "container has the GPUs of gpusPerReplica"
            )
