"""As the cluster itself plans a gang: kompakt-core's planner on a link graph, all or nothing."""

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuMask, JobUid, NodeName, PodUid, mask_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import Gang, NodeState, Refusal, Snapshot, Wish, Worker
from kompakt_core.topology.graph import LinkGraph
from kompakt_simulator.cluster import Cluster, GpuSet

WISH = Wish(pattern=Pattern.RING, sensitive=True)


class Planned:
    """A placement for machines with one link graph. Raises InvalidInput for machines of another number of GPUs.

    Traces know no workers: a job gets one per whole machine, and one for the rest.
    """

    def __init__(self, graph: LinkGraph) -> None:
        self._graph = graph

    def __call__(self, cluster: Cluster, gpus: int) -> GpuSet | None:
        """What `plan_gang` decides; None for its refusals."""
        if cluster.gpus_per_machine != self._graph.size:
            given = f"machines of {cluster.gpus_per_machine} GPUs with a link graph of {self._graph.size}"
            raise InvalidInput(f"{given}; expected equal numbers")
        if cluster.free.bit_count() < gpus:
            return None
        plan = plan_gang(self._snapshot(cluster), Gang(JobUid("job"), 1, self._workers(gpus), WISH))
        if isinstance(plan, Refusal):
            return None
        return GpuSet(sum(cluster.on_machine(int(seat.node), mask_of(seat.gpus)) for seat in plan.seats))

    def _snapshot(self, cluster: Cluster) -> Snapshot:
        every = self._graph.all_gpus
        names = {machine: NodeName(f"{machine:06}") for machine in range(cluster.machines)}
        states = (NodeState(name, self._graph, GpuMask(every & ~cluster.free_of(machine))) for machine, name in names.items())
        return Snapshot({state.name: state for state in states})

    def _workers(self, gpus: int) -> tuple[Worker, ...]:
        whole, rest = divmod(gpus, self._graph.size)
        sizes = [self._graph.size] * whole + [rest] * (rest > 0)
        return tuple(Worker(index, f"worker-{index}", PodUid(str(index)), size) for index, size in enumerate(sizes))
