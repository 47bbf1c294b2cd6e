"""What this version does not honour, as data: the resource's schema and the parser refuse it with the same sentence."""

from typing import Final

from kompakt_core.job.choices import MAX_WORKERS

# Combinations that never make sense.
WAITS: Final = "placement.consolidation: wait seconds are read in mode Fixed only; leave them out"
WAITS_ORDER: Final = (
    "placement.consolidation: all waits run from the same moment, so machineWaitSeconds <= rackWaitSeconds <= blockWaitSeconds"
)
EDGES_WITHOUT_CUSTOM: Final = "communication.customEdges and pattern Custom go together: give both or neither"
INJECTION: Final = "activationCompression needs injection Default or Always, since the start-up hook does the work"
GRADIENTS: Final = (
    "activationCompression.activationGradients Bounded needs mode ErrorBounded, since nothing is lossy in the others"
)
GRADIENTS_TWICE: Final = (
    "activationCompression.activationGradients and nonlinearInputs, its deprecated name, contradict each other (Keep is Exact): "
    "leave nonlinearInputs out"
)
NONLINEAR: Final = "activationCompression.nonlinearInputs Bounded needs mode ErrorBounded, since nothing is lossy in the others"
BATCH_BASE: Final = (
    "activationCompression.baseBatchSize and batchSize Raise go together: give both or neither; "
    "the base is what the script trains with until a larger batch was measured to fit"
)
BATCH_MAX: Final = "activationCompression.maxBatchSize needs batchSize Raise and is at least baseBatchSize"
OFFLOAD_WITHOUT_MODE: Final = (
    "activationCompression.offload Auto needs a mode other than None, since the runtime does not look at tensors then"
)
BUDGET: Final = (
    "memoryBudget is an amount above 0 such as 20Gi or 512Mi, or a share of the device's memory above 0% and at most 100%, "
    "such as 80%"
)
BUDGET_WITHOUT_MODE: Final = (
    "activationCompression.memoryBudget needs mode ErrorBounded, since there is nothing to choose from in the others"
)
BATCH_WITHOUT_MODE: Final = "activationCompression.batchSize needs a mode other than None, since the runtime does the measuring"
NO_GPU_ROLE: Final = "roles: at least one role needs gpusPerReplica above 0"
WORKERS: Final = f"roles: a job has at most {MAX_WORKERS} pods, all roles together"
TARGET: Final = (
    'targetGradientError is a share of what the optimizer steps by: decimal text above 0 and at most 0.1, such as "0.01"'
)
JOB_NAME: Final = "metadata.name must be at most 40 characters: lower-case letters, digits and dashes, beginning with a letter"
ROLE_NAME: Final = "a role's name must be at most 16 characters: lower-case letters, digits and dashes, beginning with a letter"
EDGE_RANK_POD: Final = (
    "communication.customEdges: scope Pod numbers the GPUs of one pod from 0; an edge names a rank that no GPU role has"
)
EDGE_RANK_GANG: Final = (
    "communication.customEdges: scope Gang numbers the gang's GPUs from 0; an edge names a rank that the gang does not have"
)
EDGE_SELF: Final = "communication.customEdges: an edge joins two different ranks"
TARGET_ROLES: Final = "runPolicy.successPolicy.targetRoles names a role that the job does not have"
