"""How a pod wants its GPUs chosen, as annotations."""

from kompakt_core import contract
from kompakt_core.job.model import CustomEdges, EdgeScope, Role, TrainingJob
from kompakt_core.patterns.edges import Edges, inner_edges, make_edges, text_of
from kompakt_core.patterns.names import Pattern


def wishes(job: TrainingJob, role: Role, index: int) -> dict[str, str]:
    """What the planner and the extender read of the job."""
    pattern, edges = job.communication.pattern, _edges(job.communication.custom_edges, job, role, index)
    if pattern is Pattern.CUSTOM and not edges:
        pattern = Pattern.NONE  # the gang's edges join this pod to others only
    return {
        **({contract.ANN_EDGES: text_of(edges)} if edges else {}),
        contract.ANN_PATTERN: str(pattern),
        contract.ANN_SENSITIVITY: str(job.communication.sensitivity),
        contract.ANN_POLICY: str(job.placement.policy),
        contract.ANN_REQUIRED_LINK: str(job.placement.required_link),
        **({contract.ANN_SAME_NUMA: "true"} if job.placement.same_numa_node else {}),
    }


def _edges(own: CustomEdges | None, job: TrainingJob, role: Role, index: int) -> Edges:
    """The edges inside one pod. Of scope Gang: ranks count the gang's GPUs, worker by worker."""
    edges = make_edges((edge.start, edge.end, edge.weight) for edge in own.edges) if own else ()
    if own is None or own.scope is EdgeScope.POD:
        return edges
    return inner_edges(edges, job.first_gpu(role.name) + index * role.gpus_per_replica, role.gpus_per_replica)
