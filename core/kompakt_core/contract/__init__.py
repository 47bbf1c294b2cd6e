"""What parts of kompakt say to each other through objects in the cluster: the names here, and beside them how values are written
and read, each in one module.

placement_annotations  how a pod wants its GPUs chosen        operator, users -> planner, extender, device plugin
gang_member            to which gang of others a pod belongs  users -> planner
gpu_claim              the ResourceClaim of a worker          operator, planner -> DRA driver, kube-scheduler
planned_seat           a worker's place                       planner -> extender, container (rank, by `downward`)
bound_gpus             the GPUs of a bound pod                extender, device plugin -> all
worker_labels          whose worker a pod is                  operator -> all
job_owner              to which TrainingJob an object belongs operator -> all
gpu_holders            status.held of a GPUTopology           device plugin -> extender, device plugin after it
scheduling_record      status.scheduling of a TrainingJob     planner -> operator, explain, the planner after it
preempt_request        status.scheduling.preempt              planner -> operator
expected_pods          status.expectedPods of a TrainingJob   operator -> planner, operator
conditions             status.conditions of both              operator, planner, device plugin -> all
gpu_lists, counts, words, timestamps                          what these are made of

`encode` writes and `decode` reads, or raises InvalidInput with what was wrong, where, and what would be right; `readable` is for
what stands on an object already and must not stop the reader: it takes what it can. Nobody else touches the strings.

The comment above a name says who writes it -> who reads it: what it means. docs/reference/annotations.md is made of these.

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
GANG_KIND: Final = "Gang"
GANG_PLURAL: Final = "gangs"
LIMITS_KIND: Final = "Limits"
LIMITS_PLURAL: Final = "joblimits"  # not "limits", which is kubectl's short name of LimitRange

# device plugin, users -> kubelet, kube-scheduler, extender: the extended resource; one is one whole GPU
RESOURCE: Final = "kompakt.dev/gpu"
# The names that an administrator may choose for it (chart value devicePlugin.resourceName); by the second one kompakt takes the
# place of NVIDIA's device plugin.
RESOURCES: Final = (RESOURCE, "nvidia.com/gpu")
# By which other drivers offer the same GPUs: NVIDIA's device plugin whole, shared and as MIG slices; and the label of its feature
# discovery on nodes that have some.
OTHER_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
OTHER_MIG_PREFIX: Final = "nvidia.com/mig-"
NVIDIA_GPU_PRESENT: Final = "nvidia.com/gpu.present"
# users, operator -> kube-scheduler: `spec.schedulerName` of pods whose GPUs kompakt chooses
SCHEDULER_NAME: Final = "kompakt-scheduler"
# kube-scheduler -> extender: the Lease of the active scheduler; the extender beside it decides
SCHEDULER_LEASE: Final = "kompakt-scheduler"
# operator -> operator: the Lease of the active operator
OPERATOR_LEASE: Final = "kompakt-operator"
# operator -> planner, kube-scheduler: the scheduling gate of a worker; the planner removes it when the whole gang has its places
GATE: Final = "kompakt.dev/placement"
# Who asks us for figures and explanations: a token for nobody but us, in a header that the API server's proxy passes on; and the
# part of trainingjobs and gputopologies that roles allow to `get`.
TOKEN_AUDIENCE: Final = GROUP
TOKEN_HEADER: Final = "Kompakt-Token"
SUBRESOURCE_EXPLAIN: Final = "explain"
# users -> operator, planner: `spec.managedBy` of a TrainingJob that kompakt runs, its default; others are left alone
MANAGED_BY: Final = "kompakt.dev/operator"

# Field managers: who owns which fields of an object (server-side apply).
OPERATOR_MANAGER: Final = "kompakt-operator"
PLANNER_MANAGER: Final = "kompakt-planner"
PLUGIN_MANAGER: Final = "kompakt-device-plugin"

# Labels of a job's pods and Services, written by the operator at creation.

# operator -> all, users: the TrainingJob's name
LABEL_JOB_NAME: Final = "kompakt.dev/job-name"
# operator -> all: the TrainingJob's uid; a job made anew under the same name has another one
LABEL_JOB_UID: Final = "kompakt.dev/job-uid"
# operator -> all, users: the name of the worker's role
LABEL_ROLE: Final = "kompakt.dev/role"
# operator -> all, users: the worker's number in the job, over all roles
LABEL_WORKER_INDEX: Final = "kompakt.dev/worker-index"
# operator -> all, users: the attempt's number
LABEL_ATTEMPT: Final = "kompakt.dev/attempt"
WORKER_LABELS: Final = (LABEL_JOB_NAME, LABEL_JOB_UID, LABEL_ROLE, LABEL_WORKER_INDEX, LABEL_ATTEMPT)

# Labels and annotations of pods that no TrainingJob made, and that are to be placed as one gang: pods of a Job, a JobSet, a
# PyTorchJob, a RayCluster.

# users -> planner: the name of the gang, and of the object Gang that the planner makes for it
LABEL_GANG: Final = "kompakt.dev/gang"
# users -> planner: how many pods the gang has; none of them gets a place before all exist
ANN_GANG_SIZE: Final = "kompakt.dev/gang-size"
# users -> planner: `Machine`, `Rack`, `Block` or `Cluster`: how far the gang may be spread; absent is `Cluster`
ANN_REQUIRED_LEVEL: Final = "kompakt.dev/required-level"
GANG_ANNOTATIONS: Final = frozenset({ANN_GANG_SIZE, ANN_REQUIRED_LEVEL})

# users -> the chart's policy `compression`: `ErrorBounded`, `Lossless` or `None`, on a pod that no TrainingJob made: what its
# training keeps between forward and backward pass
ANN_COMPRESSION: Final = "kompakt.dev/activation-compression"
# users -> the same: targetGradientError of such a pod, as decimal text; absent is 0.01
ANN_TARGET: Final = "kompakt.dev/target-gradient-error"

# Labels of nodes.

# administrators -> device plugin: the key in the chart's `devicePlugin.machines` that describes the node (source `text`)
LABEL_MACHINE: Final = "kompakt.dev/machine"
# administrators -> planner: the rack of the node; the chart's `consolidation.labels.rack` names another label
LABEL_RACK: Final = "kompakt.dev/rack"
# administrators -> planner: the block of racks of the node; `consolidation.labels.block` names another label
LABEL_BLOCK: Final = "kompakt.dev/block"

# Input annotations of a pod: written by the operator, or by a user on a plain pod.

# operator, users -> planner, extender, device plugin: the communication pattern that GPUs are chosen for
ANN_PATTERN: Final = "kompakt.dev/pattern"
# operator, users -> planner, extender, device plugin: edges between ranks of pattern `Custom`, such as `0-1,1-2:3` (with weights)
ANN_EDGES: Final = "kompakt.dev/edges"
# operator, users -> planner, extender, device plugin: `High`, `Medium`, `Auto`, `Low` or `None`: whether the job needs bandwidth
ANN_SENSITIVITY: Final = "kompakt.dev/bandwidth-sensitivity"
# operator, users -> planner, extender, device plugin: the placement policy, such as `Preserve`
ANN_POLICY: Final = "kompakt.dev/policy"
# operator, users -> planner, extender, device plugin: `NVLink`: the pattern may use no other link
ANN_REQUIRED_LINK: Final = "kompakt.dev/required-link"
# operator, users -> planner, extender, device plugin: `true`: all GPUs on one NUMA node; absent is `false`
ANN_SAME_NUMA: Final = "kompakt.dev/same-numa-node"
# users -> operator, planner: on a TrainingJob, what `kompakt profile -o json` printed
ANN_PROFILE: Final = "kompakt.dev/profile"
# operator -> planner: how many GPUs the worker gets by a ResourceClaim that the planner writes; absent with a device plugin
ANN_GPUS_BY_CLAIM: Final = "kompakt.dev/gpus-by-claim"
INPUT_ANNOTATIONS: Final = frozenset({ANN_PATTERN, ANN_EDGES, ANN_SENSITIVITY, ANN_POLICY, ANN_REQUIRED_LINK, ANN_SAME_NUMA})

# Output annotations: the first four come in the same patch that removes the gate, the next three on the Binding's metadata, so
# that node and GPUs land in one write.

# planner -> extender: the node that the plan gives to the worker
ANN_PLANNED_NODE: Final = "kompakt.dev/planned-node"
# planner -> extender: UUIDs of the GPUs that the plan gives to the worker, comma-separated, in pattern order
ANN_PLANNED_GPUS: Final = "kompakt.dev/planned-gpus"
# planner -> extender: MB/s that another node must reach to take a gang of one pod that the plan gave to a node
ANN_MIN_VALUE: Final = "kompakt.dev/min-value"
# planner -> trainer's container: the pod's rank in its gang (the node rank of torchrun), read by the downward API
ANN_RANK: Final = "kompakt.dev/rank"
# extender, device plugin -> all: UUIDs of the pod's GPUs, comma-separated, in pattern order
ANN_GPUS: Final = "kompakt.dev/gpus"
# extender, device plugin -> users: the same GPUs as indices of the node, comma-separated
ANN_GPU_INDICES: Final = "kompakt.dev/gpu-indices"
# extender, device plugin -> users: what the pattern gets on these GPUs, in MB/s
ANN_VALUE: Final = "kompakt.dev/value"
# extender -> kube-scheduler: when a rejected pod would be answered otherwise; the write makes kube-scheduler try the pod again
ANN_RETRIED_AT: Final = "kompakt.dev/retried-at"
OUTPUT_ANNOTATIONS: Final = frozenset(
    {ANN_PLANNED_NODE, ANN_PLANNED_GPUS, ANN_MIN_VALUE, ANN_RANK, ANN_GPUS, ANN_GPU_INDICES, ANN_VALUE, ANN_RETRIED_AT}
)
# What only kompakt writes on pods: a template's own would be believed.
OWN_ANNOTATIONS: Final = OUTPUT_ANNOTATIONS | {ANN_GPUS_BY_CLAIM}

# Environment of a worker's containers.

# operator -> torchrun: the number of pods with GPUs
ENV_NNODES: Final = "PET_NNODES"
# operator -> torchrun: the pod's rank, from the annotation `kompakt.dev/rank`
ENV_NODE_RANK: Final = "PET_NODE_RANK"
# operator -> torchrun: processes in the pod, one for each GPU
ENV_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
# operator -> the user's script: the hostname of rank 0's pod
ENV_MASTER_ADDR: Final = "MASTER_ADDR"
# operator -> the user's script: the port of rank 0's pod
ENV_MASTER_PORT: Final = "MASTER_PORT"
# operator -> torchrun: as MASTER_ADDR, by the name that torchrun reads
ENV_TORCHRUN_MASTER_ADDR: Final = "PET_MASTER_ADDR"
# operator -> torchrun: as MASTER_PORT, by the name that torchrun reads
ENV_TORCHRUN_MASTER_PORT: Final = "PET_MASTER_PORT"
# operator, torchrun -> the user's script: the process's rank; the operator sets it where no pod has more than one GPU
ENV_RANK: Final = "RANK"
# operator, torchrun -> the user's script: the number of processes; set as RANK is
ENV_WORLD_SIZE: Final = "WORLD_SIZE"
# operator, torchrun -> the user's script, runtime: the process's rank in its pod; set as RANK is
ENV_LOCAL_RANK: Final = "LOCAL_RANK"
# device plugin -> CUDA: the GPUs of the container, in the order of `kompakt.dev/gpus`
ENV_CUDA_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
# device plugin, operator -> NVIDIA's container runtime: the GPUs to show; `void` in containers that were given none
ENV_NVIDIA_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
NO_GPUS: Final = "void"  # its value for none, whatever else it names
# operator -> runtime, the user's script: the attempt's number
ENV_ATTEMPT: Final = "KOMPAKT_ATTEMPT"

# Environment that the runtime reads (kompakt_runtime.config repeats these).

# operator, `kompakt run`, users -> runtime: `None`, `Lossless` or `ErrorBounded`
ENV_MODE: Final = "KOMPAKT_MODE"
# operator, `kompakt run`, users -> runtime: error of weight gradients as a share of what the optimizer steps by, as decimal text
ENV_TARGET: Final = "KOMPAKT_TARGET"
# operator, `kompakt run`, users -> runtime: other modes by module, a JSON list of `{"modules": ..., "mode": ...}`
ENV_OVERRIDES: Final = "KOMPAKT_OVERRIDES"
# operator, `kompakt run`, users -> runtime: smaller tensors stay as they are
ENV_MIN_TENSOR_BYTES: Final = "KOMPAKT_MIN_TENSOR_BYTES"
# operator, `kompakt run`, users -> runtime: `Bounded` or `Exact`: whether gradients of activations may change, within bounds
ENV_ACTIVATION_GRADIENTS: Final = "KOMPAKT_ACTIVATION_GRADIENTS"
# users -> runtime: deprecated name of KOMPAKT_ACTIVATION_GRADIENTS; `Keep` is `Exact`, `Bounded` is `Bounded`
ENV_NONLINEAR: Final = "KOMPAKT_NONLINEAR_INPUTS"
# operator, `kompakt run`, users -> runtime: `Never` or `Auto`: whether tensors may wait in host memory
ENV_OFFLOAD: Final = "KOMPAKT_OFFLOAD"
# operator, `kompakt run`, users -> runtime: how much memory of its device a step may take, as `20Gi` or `80%`; empty: no budget
ENV_MEMORY_BUDGET: Final = "KOMPAKT_MEMORY_BUDGET"
# operator, users -> runtime: `Ignore` or `Fail`: whether training ends where compression cannot start
ENV_FAILURE_POLICY: Final = "KOMPAKT_FAILURE_POLICY"
# operator, `kompakt run` -> runtime: `Keep`, `Suggest`, `Measure` or `Raise`: what is done about the batch that would fit
ENV_BATCH: Final = "KOMPAKT_BATCH"
# operator -> the user's script: the batch to train with, where `batchSize` is `Raise`; the runtime does not read it
ENV_BATCH_SIZE: Final = "KOMPAKT_BATCH_SIZE"
# operator -> runtime: folder of an emptyDir with one small file per rank
ENV_STATE_DIR: Final = "KOMPAKT_STATE_DIR"
# operator -> the user's script, runtime: the file in which the script may say how far it is
ENV_PROGRESS_FILE: Final = "KOMPAKT_PROGRESS_FILE"
# operator -> runtime: port of /metrics in the pod's first training process
ENV_METRICS_PORT: Final = "KOMPAKT_METRICS_PORT"
# operator -> runtime: the termination message's file, where a container has a `terminationMessagePath` of its own
ENV_TERMINATION_LOG: Final = "KOMPAKT_TERMINATION_LOG"
# `kompakt profile` -> runtime: what is measured: data, steps of warm-up, steps to time
ENV_PROFILE: Final = "KOMPAKT_PROFILE"
# `kompakt profile` -> runtime: with data `cold` or `warm`, a JSON list of the files and folders meant
ENV_PROFILE_DATA: Final = "KOMPAKT_PROFILE_DATA"
RUNTIME_ENV: Final = frozenset(
    {ENV_MODE, ENV_TARGET, ENV_OVERRIDES, ENV_MIN_TENSOR_BYTES, ENV_FAILURE_POLICY, ENV_STATE_DIR, ENV_ATTEMPT}
    | {ENV_PROGRESS_FILE, ENV_METRICS_PORT, ENV_BATCH, ENV_ACTIVATION_GRADIENTS, ENV_NONLINEAR, ENV_OFFLOAD}
    | {ENV_MEMORY_BUDGET}
)

# Injection: an init container copies the runtime into an emptyDir that the trainer mounts read-only.
INJECT_INIT_CONTAINER: Final = "kompakt-runtime"
INJECT_PAYLOAD_VOLUME: Final = "kompakt-runtime"
INJECT_PAYLOAD_PATH: Final = "/opt/kompakt/runtime"  # PYTHONPATH gets <path>/bootstrap (holds sitecustomize.py) first
INJECT_STATE_VOLUME: Final = "kompakt-state"
INJECT_STATE_PATH: Final = "/var/run/kompakt"
PROGRESS_FILE: Final = f"{INJECT_STATE_PATH}/progress.json"
SWITCH_FILE: Final = f"{INJECT_STATE_PATH}/off"  # while it is there the pod's processes train without compression
SWITCHED_OFF: Final = "SwitchedOff"  # a report's reason meanwhile, and to the end where it stays
METRICS_PORT: Final = 9402  # /metrics of a pod's first training process
METRICS_PORT_NAME: Final = "kompakt-metrics"
MASTER_PORT: Final = 29500
TERMINATION_VERSION: Final = 1  # field "kompakt" of the one JSON object in the termination message

# Ports of the extender's process.
VERBS_PORT: Final = 8901  # 127.0.0.1 only
HEALTH_PORT: Final = 8902  # health, metrics, explain
