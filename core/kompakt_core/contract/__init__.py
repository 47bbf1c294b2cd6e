"""What parts of kompakt say to each other through objects in the cluster: the names here, and beside them how values are written
and read, each in one module.

placement_annotations  how a pod wants its GPUs chosen        operator, users -> planner, extender, device plugin
planned_seat           a worker's place                       planner -> extender, container (rank, by `downward`)
bound_gpus             the GPUs of a bound pod                extender, device plugin -> all
worker_labels          whose worker a pod is                  operator -> all
job_owner              to which TrainingJob an object belongs operator -> all
gpu_holders            status.held of a GPUTopology           device plugin -> extender, device plugin after it
scheduling_record      status.scheduling of a TrainingJob     planner -> operator, explain, the planner after it
preempt_request        status.scheduling.preempt              planner -> operator
conditions             status.conditions of both              operator, planner, device plugin -> all
gpu_lists, counts, words, timestamps                          what these are made of

`encode` writes and `decode` reads, or raises InvalidInput with what was wrong, where, and what would be right; `readable` is for
what stands on an object already and must not stop the reader: it takes what it can. Nobody else touches the strings.

The runtime cannot import this package (it stands alone in the user's container) and repeats the few environment
names it reads; tests/contract compares the two.
"""

from typing import Final

GROUP: Final = "kompakt.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
JOB_KIND: Final = "TrainingJob"
JOB_PLURAL: Final = "trainingjobs"
TOPOLOGY_KIND: Final = "GPUTopology"
TOPOLOGY_PLURAL: Final = "gputopologies"
LIMITS_KIND: Final = "Limits"
LIMITS_PLURAL: Final = "joblimits"  # not "limits", which is kubectl's short name of LimitRange

RESOURCE: Final = "kompakt.dev/gpu"
# By which other drivers offer the same GPUs: NVIDIA's device plugin whole, shared and as MIG slices; and the label of its feature
# discovery on nodes that have some.
OTHER_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
OTHER_MIG_PREFIX: Final = "nvidia.com/mig-"
NVIDIA_GPU_PRESENT: Final = "nvidia.com/gpu.present"
SCHEDULER_NAME: Final = "kompakt-scheduler"
SCHEDULER_LEASE: Final = "kompakt-scheduler"
OPERATOR_LEASE: Final = "kompakt-operator"
GATE: Final = "kompakt.dev/placement"
# Who asks us for figures and explanations: a token for nobody but us, in a header that the API server's proxy passes on; and the
# part of trainingjobs and gputopologies that roles allow to `get`.
TOKEN_AUDIENCE: Final = GROUP
TOKEN_HEADER: Final = "Kompakt-Token"
SUBRESOURCE_EXPLAIN: Final = "explain"
MANAGED_BY: Final = "kompakt.dev/operator"

# Field managers: who owns which fields of an object (server-side apply).
OPERATOR_MANAGER: Final = "kompakt-operator"
PLANNER_MANAGER: Final = "kompakt-planner"
PLUGIN_MANAGER: Final = "kompakt-device-plugin"

# Labels of a job's pods and Services, written by the operator at creation.
LABEL_JOB_NAME: Final = "kompakt.dev/job-name"
LABEL_JOB_UID: Final = "kompakt.dev/job-uid"
LABEL_ROLE: Final = "kompakt.dev/role"
LABEL_WORKER_INDEX: Final = "kompakt.dev/worker-index"
LABEL_ATTEMPT: Final = "kompakt.dev/attempt"
WORKER_LABELS: Final = (LABEL_JOB_NAME, LABEL_JOB_UID, LABEL_ROLE, LABEL_WORKER_INDEX, LABEL_ATTEMPT)
# Labels of nodes.
LABEL_MACHINE: Final = "kompakt.dev/machine"  # key in the machines ConfigMap that describes this node (text source)
LABEL_RACK: Final = "kompakt.dev/rack"
LABEL_BLOCK: Final = "kompakt.dev/block"

# Input annotations of a pod: written by the operator, or by a user on a plain pod.
ANN_PATTERN: Final = "kompakt.dev/pattern"
ANN_EDGES: Final = "kompakt.dev/edges"
ANN_SENSITIVITY: Final = "kompakt.dev/bandwidth-sensitivity"
ANN_POLICY: Final = "kompakt.dev/policy"
ANN_REQUIRED_LINK: Final = "kompakt.dev/required-link"
ANN_SAME_NUMA: Final = "kompakt.dev/same-numa-node"  # true or false; absent is false
# On a TrainingJob: what `kompakt profile -o json` printed.
ANN_PROFILE: Final = "kompakt.dev/profile"
INPUT_ANNOTATIONS: Final = frozenset({ANN_PATTERN, ANN_EDGES, ANN_SENSITIVITY, ANN_POLICY, ANN_REQUIRED_LINK, ANN_SAME_NUMA})

# Output annotations written by the planner in the same patch that removes the gate.
ANN_PLANNED_NODE: Final = "kompakt.dev/planned-node"
ANN_PLANNED_GPUS: Final = "kompakt.dev/planned-gpus"  # UUIDs, comma-separated, in pattern order
ANN_MIN_VALUE: Final = "kompakt.dev/min-value"  # MB/s
ANN_RANK: Final = "kompakt.dev/rank"  # node rank of the pod in its gang
# Output annotations written by the extender on the Binding's metadata: node and GPUs land in one write.
ANN_GPUS: Final = "kompakt.dev/gpus"  # UUIDs, comma-separated, in pattern order
ANN_GPU_INDICES: Final = "kompakt.dev/gpu-indices"  # the same GPUs as indices of the node, comma-separated
ANN_VALUE: Final = "kompakt.dev/value"  # MB/s that the pattern gets on these GPUs
# Written by the extender on a pod that it rejected before and would answer otherwise now: kube-scheduler tries it again.
ANN_RETRIED_AT: Final = "kompakt.dev/retried-at"
OUTPUT_ANNOTATIONS: Final = frozenset(
    {ANN_PLANNED_NODE, ANN_PLANNED_GPUS, ANN_MIN_VALUE, ANN_RANK, ANN_GPUS, ANN_GPU_INDICES, ANN_VALUE, ANN_RETRIED_AT}
)

# Environment of a worker's containers.
ENV_NNODES: Final = "PET_NNODES"
ENV_NODE_RANK: Final = "PET_NODE_RANK"
ENV_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
ENV_MASTER_ADDR: Final = "MASTER_ADDR"
ENV_MASTER_PORT: Final = "MASTER_PORT"
ENV_TORCHRUN_MASTER_ADDR: Final = "PET_MASTER_ADDR"  # the names under which torchrun itself reads the two
ENV_TORCHRUN_MASTER_PORT: Final = "PET_MASTER_PORT"
ENV_RANK: Final = "RANK"  # set only where gpusPerReplica <= 1: otherwise torchrun sets them
ENV_WORLD_SIZE: Final = "WORLD_SIZE"
ENV_LOCAL_RANK: Final = "LOCAL_RANK"
ENV_CUDA_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # from the device plugin's Allocate, in the order of ANN_GPUS
ENV_NVIDIA_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
NO_GPUS: Final = "void"  # its value for none, whatever else it names
ENV_ATTEMPT: Final = "KOMPAKT_ATTEMPT"
# Environment that the runtime reads (kompakt_runtime.config repeats these).
ENV_MODE: Final = "KOMPAKT_MODE"  # None Lossless ErrorBounded
ENV_TARGET: Final = "KOMPAKT_TARGET"  # decimal text, share of what the optimizer steps by
ENV_OVERRIDES: Final = "KOMPAKT_OVERRIDES"  # JSON list of {modules, mode}
ENV_MIN_TENSOR_BYTES: Final = "KOMPAKT_MIN_TENSOR_BYTES"
ENV_ACTIVATION_GRADIENTS: Final = "KOMPAKT_ACTIVATION_GRADIENTS"  # Bounded Exact
ENV_NONLINEAR: Final = "KOMPAKT_NONLINEAR_INPUTS"  # deprecated name of it, which nobody writes any more: Keep Bounded
ENV_OFFLOAD: Final = "KOMPAKT_OFFLOAD"  # Never Auto
ENV_FAILURE_POLICY: Final = "KOMPAKT_FAILURE_POLICY"  # Ignore Fail
ENV_BATCH: Final = "KOMPAKT_BATCH"  # Keep Suggest Measure Raise
ENV_BATCH_SIZE: Final = "KOMPAKT_BATCH_SIZE"  # for the user's script, with batchSize Raise; the runtime does not read it
ENV_STATE_DIR: Final = "KOMPAKT_STATE_DIR"  # our emptyDir: one small file per rank
ENV_PROGRESS_FILE: Final = "KOMPAKT_PROGRESS_FILE"  # where the user's script may say how far it is
ENV_METRICS_PORT: Final = "KOMPAKT_METRICS_PORT"
ENV_TERMINATION_LOG: Final = "KOMPAKT_TERMINATION_LOG"  # only where a container has a terminationMessagePath of its own
ENV_PROFILE: Final = "KOMPAKT_PROFILE"  # set by `kompakt profile` only: data, steps of warm-up, steps to time
ENV_PROFILE_DATA: Final = "KOMPAKT_PROFILE_DATA"  # with data `cold` or `warm`: JSON list of the files and folders meant
RUNTIME_ENV: Final = frozenset(
    {ENV_MODE, ENV_TARGET, ENV_OVERRIDES, ENV_MIN_TENSOR_BYTES, ENV_FAILURE_POLICY, ENV_STATE_DIR, ENV_ATTEMPT}
    | {ENV_PROGRESS_FILE, ENV_METRICS_PORT, ENV_BATCH, ENV_ACTIVATION_GRADIENTS, ENV_NONLINEAR, ENV_OFFLOAD}
)

# Injection: an init container copies the runtime into an emptyDir that the trainer mounts read-only.
INJECT_INIT_CONTAINER: Final = "kompakt-runtime"
INJECT_PAYLOAD_VOLUME: Final = "kompakt-runtime"
INJECT_PAYLOAD_PATH: Final = "/opt/kompakt/runtime"  # PYTHONPATH gets <path>/bootstrap (holds sitecustomize.py) first
INJECT_STATE_VOLUME: Final = "kompakt-state"
INJECT_STATE_PATH: Final = "/var/run/kompakt"
PROGRESS_FILE: Final = f"{INJECT_STATE_PATH}/progress.json"
METRICS_PORT: Final = 9402  # /metrics of a pod's first training process
METRICS_PORT_NAME: Final = "kompakt-metrics"
MASTER_PORT: Final = 29500
TERMINATION_VERSION: Final = 1  # field "kompakt" of the one JSON object in the termination message

# Ports of the extender's process.
VERBS_PORT: Final = 8901  # 127.0.0.1 only
HEALTH_PORT: Final = 8902  # health, metrics, explain
