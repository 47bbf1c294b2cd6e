"""From a TrainingJob to the objects of one attempt: a headless Service and the gang's gated pods. Pure."""

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.contract import gpu_claim, job_owner, worker_labels
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.contract.worker_labels import AttemptLabels, WorkerLabels
from kompakt_core.errors import InvalidInput
from kompakt_core.job import template_rules
from kompakt_core.job.batches import Batch
from kompakt_core.job.model import ActivationGradients, Role, TrainingJob
from kompakt_core.job.object_names import pod_name, service_name
from kompakt_core.job.quantity import parse_bytes
from kompakt_operator import environment, injection
from kompakt_operator.environment import Variables
from kompakt_operator.placement_annotations import annotations_of

Object = dict[str, Any]
SHM_VOLUME: Final = "kompakt-shm"
# Kubernetes gives every pod 300 s here unless it says otherwise (admission plugin DefaultTolerationSeconds).
LOST_NODE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
LOST_NODE_SECONDS: Final = 60
# What keeps cluster-autoscaler (its FAQ) and Karpenter (its page on disruption) from removing the node of a pod.
KEEPS_ITS_NODE: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


def checked(job: TrainingJob) -> str:
    """Refuse what cannot be rendered; else say why the start-up hook is left out ("" if it is in).

    Raises InvalidInput with the path and a sentence for people.
    """
    template_rules.check(job)
    notes = []
    for i, role in enumerate(job.roles):
        container = _gpu_container(role)
        problem = injection.obstacle(container) if injection.wanted(job, role) else ""
        if problem and not injection.skipped(job, role, container):
            raise InvalidInput(f"spec.roles[{i}].template: {problem}")
        _memory_limit(container, f"spec.roles[{i}].template.spec: memory limit of container {container['name']}")
        notes.append(problem)
    return next(filter(None, notes), "")


def service(job: TrainingJob, attempt: int) -> Object:
    """One per attempt, so that names never resolve to pods of an attempt that is over."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(job.name, attempt),
            "namespace": job.namespace,
            "labels": worker_labels.encode_attempt(_attempt(job, attempt)),
            "ownerReferences": [job_owner.encode(owner_of(job))],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # workers look for each other before any of them is ready
            "selector": worker_labels.attempt_selector(job.uid, attempt),
        },
    }


def budget(job: TrainingJob, attempt: int) -> Object:
    """Keeps a drain from the attempt's pods (runPolicy.evictions: Refuse)."""
    selector = worker_labels.attempt_selector(job.uid, attempt)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": service(job, attempt)["metadata"],
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": selector}},
    }


def pod(
    job: TrainingJob,
    role: Role,
    index: int,
    attempt: int,
    *,
    image: str,
    keeps_node: bool = True,
    batch: Batch | None = None,
    gradients: ActivationGradients | None = None,
    pull_secrets: Sequence[Mapping[str, Any]] = (),
    resource: str = contract.RESOURCE,
    claims_scheduler: str = "",
) -> Object:
    """One worker, gated. `index` counts within the role; `image` holds the runtime.

    `keeps_node`: autoscalers are told to leave its node alone, unless the template tells them otherwise. `batch`: what it is
    told where batches are raised; `gradients`: what of gradients of activations. `pull_secrets`: all that a pod with the runtime
    names, if any. `resource`: by which name it asks for GPUs. `claims_scheduler`: the scheduler that serves ResourceClaims, where
    it gets its GPUs by one; "": a device plugin hands them out.
    """
    spec = copy.deepcopy(dict(role.template["spec"]))
    hooked = has_runtime(job, role)
    port = hooked and injection.serves(job, role)
    shared = environment.common(job, attempt, batch)
    runtime = injection.environment(job, port=port, batch=batch, gradients=gradients) if hooked else []
    asks = _with_claim if claims_scheduler else partial(_with_gpus, resource=resource)
    containers = [asks(container, role) for container in spec["containers"]]
    spec["containers"] = [_container(job, role, container, shared, runtime, port) for container in containers]
    spec["initContainers"] = [_helper(container, shared) for container in spec.get("initContainers") or ()]
    if hooked:
        spec["initContainers"].insert(0, injection.init_container(image))
        spec["volumes"] = [*(spec.get("volumes") or ()), *injection.volumes()]
        spec |= {"imagePullSecrets": list(pull_secrets)} if pull_secrets else {}
    _share_memory(job, role, spec)
    spec |= {
        "schedulerName": claims_scheduler or contract.SCHEDULER_NAME,
        "restartPolicy": "Never",
        "hostname": environment.worker_name(job, role, index),
        "subdomain": service_name(job.name, attempt),
        "tolerations": _tolerations(spec),
        "schedulingGates": [*(spec.get("schedulingGates") or ()), {"name": contract.GATE}],
    }
    if job.priority_class_name:
        spec["priorityClassName"] = job.priority_class_name
    metadata = _metadata(job, role, index, attempt)
    if claims_scheduler:
        metadata["annotations"] |= gpu_claim.encode_size(role.gpus_per_replica)
        spec["resourceClaims"] = [*(spec.get("resourceClaims") or ()), *_claims(role, metadata["name"])]
    if keeps_node:
        metadata["annotations"] = KEEPS_ITS_NODE | metadata["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def has_runtime(job: TrainingJob, role: Role) -> bool:
    """Whether the role's pods get the start-up hook."""
    return injection.wanted(job, role) and not injection.obstacle(_gpu_container(role))


def _tolerations(spec: Object) -> list[Object]:
    """The template's, and a short patience with a lost node: one lost worker idles the whole gang."""
    own = list(spec.get("tolerations") or ())
    known = {toleration.get("key") or "" for toleration in own}
    if "" in known:  # tolerates everything
        return own
    lost = [key for key in LOST_NODE if key not in known]
    short = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}
    return own + [{"key": key, **short} for key in lost]


def _metadata(job: TrainingJob, role: Role, index: int, attempt: int) -> Object:
    given = role.template.get("metadata") or {}
    own_labels, notes = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
    notes = {key: text for key, text in notes.items() if key not in contract.OWN_ANNOTATIONS}
    return {
        "name": pod_name(job.name, role.name, index, attempt),
        "namespace": job.namespace,
        "labels": {
            **own_labels,
            **worker_labels.encode(WorkerLabels(_attempt(job, attempt), role.name, job.first_index(role.name) + index)),
        },
        "annotations": notes | annotations_of(job, role, index),
        "ownerReferences": [job_owner.encode(owner_of(job))],
    }


def _attempt(job: TrainingJob, attempt: int) -> AttemptLabels:
    return AttemptLabels(job.name, job.uid, attempt)


def owner_of(job: TrainingJob) -> JobOwner:
    """What all objects of the job name as their controller."""
    return JobOwner(job.namespace, job.name, job.uid)


def _gpu_container(role: Role) -> Object:
    containers: list[Object] = role.template["spec"]["containers"]
    return next((c for c in containers if c["name"] == role.gpu_container), containers[0])


def _container(job: TrainingJob, role: Role, container: Object, shared: Variables, runtime: Variables, port: bool) -> Object:
    """One of the template's containers; only the GPU container sees GPUs and gets, if the `runtime` has settings, the hook."""
    if not role.gpus_per_replica or container["name"] != _gpu_container(role)["name"]:
        return _helper(container, shared)
    if runtime:
        path = container.get("terminationMessagePath")
        runtime = runtime + ([environment.value(contract.ENV_TERMINATION_LOG, path)] if path else [])
        container = _hooked(container, port)
    return {**container, "env": environment.added(container, shared + environment.training(job, role) + runtime)}


def _with_gpus(container: Object, role: Role, resource: str) -> Object:
    """One of the template's containers; the GPU container asks for the role's GPUs."""
    if not role.gpus_per_replica or container["name"] != _gpu_container(role)["name"]:
        return container
    resources = dict(container.get("resources") or {})
    for part in ("limits", "requests"):
        resources[part] = {**(resources.get(part) or {}), resource: str(role.gpus_per_replica)}
    return {**container, "resources": resources}


def _with_claim(container: Object, role: Role) -> Object:
    """The same by the pod's ResourceClaim."""
    if not role.gpus_per_replica or container["name"] != _gpu_container(role)["name"]:
        return container
    resources = dict(container.get("resources") or {})
    return {**container, "resources": {**resources, "claims": [*(resources.get("claims") or ()), {"name": gpu_claim.NAME}]}}


def _claims(role: Role, pod_name: str) -> list[Object]:
    """The planner writes the claim of that name when the pod has its place."""
    return [{"name": gpu_claim.NAME, "resourceClaimName": pod_name}] if role.gpus_per_replica else []


def _helper(container: Object, shared: Variables) -> Object:
    """A container without GPUs."""
    return {**container, "env": environment.added(container, shared + environment.without_gpus())}


def _hooked(container: Object, port: bool) -> Object:
    """The GPU container with the hook first on its PYTHONPATH, our mounts and, if `port`, the port of its figures."""
    own = list(container.get("env") or ())
    before = next((v.get("value") or "" for v in own if v["name"] == "PYTHONPATH"), "")
    path = environment.value("PYTHONPATH", injection.python_path(before))
    ports = list(container.get("ports") or ())
    taken = any(p.get("containerPort") == contract.METRICS_PORT or p.get("name") == contract.METRICS_PORT_NAME for p in ports)
    if port and not taken:
        ports.append({"name": contract.METRICS_PORT_NAME, "containerPort": contract.METRICS_PORT, "protocol": "TCP"})
    return {
        **container,
        **({"ports": ports} if ports else {}),
        "env": [path, *(v for v in own if v["name"] != "PYTHONPATH")],
        "volumeMounts": [*(container.get("volumeMounts") or ()), *injection.mounts()],
    }


def _share_memory(job: TrainingJob, role: Role, spec: Object) -> None:
    """/dev/shm for the GPU container where the template mounts none: loaders hand batches over in it; 64 MB are too few.

    Size: spec.sharedMemory, else half the container's memory limit, else bounded by the node's memory only.
    """
    name = _gpu_container(role)["name"]
    container = next(c for c in spec["containers"] if c["name"] == name)
    if not role.gpus_per_replica or any(mount.get("mountPath") == "/dev/shm" for mount in container.get("volumeMounts") or ()):
        return
    limit = _memory_limit(container, f"memory limit of container {name}")
    size = job.shared_memory if job.shared_memory >= 0 else None if limit is None else limit // 2
    volume = {"medium": "Memory"} if size is None else {"medium": "Memory", "sizeLimit": str(size)}
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": SHM_VOLUME, "emptyDir": volume}]
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), {"name": SHM_VOLUME, "mountPath": "/dev/shm"}]


def _memory_limit(container: Object, path: str) -> int | None:
    """In bytes; None without one. Raises InvalidInput that begins with `path` for what is no quantity."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else parse_bytes(limit, path)
