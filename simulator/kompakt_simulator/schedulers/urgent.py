"""Running jobs end for a waiting one of higher priority, by the rules and the code that the cluster goes by (policy.preempt).

Traces know no workers: a job counts as single GPUs, as everywhere in the simulator but in placement `planned`.
"""

from itertools import combinations

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuMask, GpuUuid, JobUid, MegabytesPerSecond, NodeName, PodUid, mask_of
from kompakt_core.job.model import Preemption as Rules
from kompakt_core.placement.model import Gang, Level, NodeState, Snapshot, Wish, Worker
from kompakt_core.placement.seating import LEVEL_LABELS
from kompakt_core.policy.preempt import Held, NotBefore, Preemption, RunningGang, preempt
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind
from kompakt_simulator.cluster import Cluster, GpuSet, Shape
from kompakt_simulator.schedulers.acceptance import accepts
from kompakt_simulator.task import Task
from kompakt_simulator.world import World

MOST_GPUS = 64  # of a machine, for kompakt_core.placement
MIN_RUN_S = Rules().min_runtime_seconds  # what a TrainingJob has that says nothing


class Urgent:
    """Finds victims by priority; keeps what is the same from moment to moment."""

    def __init__(self, shape: Shape) -> None:
        """Raises InvalidInput for machines larger than core plans on."""
        if max(shape.sizes) > MOST_GPUS:
            raise InvalidInput(
                f"machines of {max(shape.sizes)} GPUs: jobs of different priority stop each other on machines of at most "
                f"{MOST_GPUS}; leave the column priority empty"
            )
        graphs = {size: _alike(size) for size in set(shape.sizes)}
        self._shape = shape
        self._graphs = [graphs[size] for size in shape.sizes]
        self._labels = [self._labels_of(machine) for machine in range(len(shape.sizes))]

    def _labels_of(self, machine: int) -> dict[str, str]:
        labels = {LEVEL_LABELS[Level.RACK]: str(self._shape.racks[machine])}
        if self._shape.blocks is not None:
            labels[LEVEL_LABELS[Level.BLOCK]] = str(self._shape.blocks[machine])
        return labels

    def victims(self, world: World, task: Task) -> tuple[list[Task], GpuSet] | float | None:
        """Whom to stop for a job that has no place, and the GPUs that it then gets; or from which second on that would help, as
        nobody is stopped before a minimum run time; None where it would not.
        """
        lower = [one for one in world.running.values() if one.job.priority < task.job.priority]
        if world.open_to(task).bit_count() + sum(one.gpus for one in lower) < task.gpus:
            return None

        def takes(level: Level) -> bool:
            return any(level is one for one, _ in self._shape.levels.sizes) and accepts(world, task, level)

        gangs = [self._running(one) for one in lower]
        found = preempt(self._snapshot(world.open_to(task)), _gang(task), task.job.priority, gangs, takes, world.now / 1000)
        if isinstance(found, NotBefore):
            return found.at
        return None if found is None else self._chosen(world, found)

    def _chosen(self, world: World, found: Preemption) -> tuple[list[Task], GpuSet]:
        gpus = (world.cluster.on_machine(int(seat.node), mask_of(seat.gpus)) for seat in found.plan.seats)
        return [world.running[int(one.job_uid)] for one in found.victims], GpuSet(sum(gpus))

    def _running(self, task: Task) -> RunningGang:
        held = Cluster.of(self._shape, task.held)
        pods = (Held(_name(machine), held.free_of(machine)) for machine in self._shape.per_machine(task.held))
        since = task.begin / 1000
        return RunningGang(JobUid(str(task.number)), 1, task.job.priority, since, since + MIN_RUN_S, tuple(pods))

    def _snapshot(self, gpus: GpuSet) -> Snapshot:
        open_ = Cluster.of(self._shape, gpus)
        parts = enumerate(zip(self._graphs, self._labels, strict=True))
        states = (
            NodeState(_name(machine), graph, GpuMask(graph.all_gpus & ~open_.free_of(machine)), labels)
            for machine, (graph, labels) in parts
        )
        return Snapshot({state.name: state for state in states})


def _alike(size: int) -> LinkGraph:
    """A machine of which the trace tells no links."""
    gpus = tuple(Gpu(GpuIndex(index), GpuUuid(f"GPU-{index}")) for index in range(size))
    pairs = combinations((gpu.index for gpu in gpus), 2)
    return LinkGraph(gpus, tuple(Link(a, b, LinkKind.SYS, 0, MegabytesPerSecond(1)) for a, b in pairs))


def _name(machine: int) -> NodeName:
    return NodeName(f"{machine:06}")


def _gang(task: Task) -> Gang:
    workers = tuple(Worker(index, f"worker-{index}", PodUid(str(index)), 1) for index in range(task.gpus))
    return Gang(JobUid(str(task.number)), 1, workers, Wish())
