"""How a pod wants its GPUs chosen, as annotations."""

from kompakt_core.contract import placement_annotations
from kompakt_core.contract.placement_annotations import PlacementAnnotations
from kompakt_core.job.model import CustomEdges, EdgeScope, Role, TrainingJob
from kompakt_core.patterns.edges import Edges, inner_edges, make_edges
from kompakt_core.patterns.names import Pattern


def annotations_of(job: TrainingJob, role: Role, index: int) -> dict[str, str]:
    """What the planner and the extender read of the job."""
    pattern, edges = job.communication.pattern, _edges(job.communication.custom_edges, job, role, index)
    if pattern is Pattern.CUSTOM and not edges:
        pattern = Pattern.NONE  # the gang's edges join this pod to others only
    return placement_annotations.encode(
        PlacementAnnotations(
            pattern=pattern,
            edges=edges if pattern is Pattern.CUSTOM else (),
            sensitivity=job.communication.sensitivity,
            policy=job.placement.policy,
            required_link=job.placement.required_link,
            same_numa_node=job.placement.same_numa_node,
        )
    )


def _edges(own: CustomEdges | None, job: TrainingJob, role: Role, index: int) -> Edges:
    """The edges inside one pod. Of scope Gang: ranks count the gang's GPUs, worker by worker."""
    edges = make_edges((edge.start, edge.end, edge.weight) for edge in own.edges) if own else ()
    if own is None or own.scope is EdgeScope.POD:
        return edges
    return inner_edges(edges, job.first_gpu(role.name) + index * role.gpus_per_replica, role.gpus_per_replica)
