"""The placements, one row each: which GPUs a job gets.

A placement is a function of (cluster, number of GPUs). 1. It answers a set of exactly that many free GPUs, or None.
2. The same inputs give the same answer. 3. What it refuses it also refuses when fewer GPUs are free.
"""

from collections.abc import Callable, Mapping

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuMask, JobUid, NodeName, PodUid, mask_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import Gang, GpuRequest, Level, NodeState, Rejection, Snapshot, Worker
from kompakt_core.topology.graph import LinkGraph
from kompakt_simulator.cluster import ClusterState, GpuSet, lowest_of


def count(cluster: ClusterState, gpus: int) -> GpuSet | None:
    """The `gpus` lowest free GPUs of the cluster, None if there are fewer."""
    return lowest_of(cluster.free, gpus) if cluster.free.bit_count() >= gpus else None


def consolidated(cluster: ClusterState, gpus: int) -> GpuSet | None:
    """floor(gpus / machine) empty machines plus one for the remainder, lowest index on ties; None if that is not free.

    A machine here is the cluster's largest: where machines differ, only the largest serve as whole ones.
    """
    if cluster.free.bit_count() < gpus:
        return None
    largest = cluster.gpus_per_machine
    whole, rest = divmod(gpus, largest)
    empty = [machine for machine, free in enumerate(cluster.counts) if free == largest][:whole] if whole else []
    if len(empty) < whole:
        return None
    chosen = sum(cluster.shape.masks[machine] for machine in empty)
    if rest:
        taken = set(empty)
        holds = [(free, machine) for machine, free in enumerate(cluster.counts) if free >= rest and machine not in taken]
        if not holds:
            return None
        chosen |= cluster.lowest(min(holds)[1], rest)
    return GpuSet(chosen)


def levels(cluster: ClusterState, gpus: int) -> GpuSet | None:
    """The best fit at the best level there is; None when the cluster has fewer free GPUs."""
    level = best_level(cluster, gpus)
    return None if level is None else at_level(cluster, gpus, level)


def best_level(cluster: ClusterState, gpus: int) -> Level | None:
    """The innermost level that has so many free GPUs now."""
    if max(cluster.counts) >= gpus:
        return Level.MACHINE
    if cluster.free.bit_count() < gpus:
        return None
    shape = cluster.shape
    if any((cluster.free & mask).bit_count() >= gpus for mask in shape.rack_masks):
        return Level.RACK
    if any((cluster.free & mask).bit_count() >= gpus for mask in shape.block_masks):
        return Level.BLOCK
    return Level.CLUSTER


def at_level(cluster: ClusterState, gpus: int, level: Level) -> GpuSet:
    """The best fit at a level that has so many free GPUs: the member that will have the fewest left, few machines in it."""
    counts, shape = cluster.counts, cluster.shape
    if level is Level.MACHINE:
        _, machine = min((free, machine) for machine, free in enumerate(counts) if free >= gpus)
        return cluster.lowest(machine, gpus)
    groups = {Level.RACK: shape.rack_machines, Level.BLOCK: shape.block_machines}.get(level, (tuple(range(len(counts))),))
    totals = [sum(counts[machine] for machine in group) for group in groups]
    _, chosen = min((total, index) for index, total in enumerate(totals) if total >= gpus)
    if level is Level.RACK:
        return GpuSet(sum(_packed(cluster, groups[chosen], gpus)))
    return GpuSet(sum(_over_racks(cluster, groups[chosen], gpus)))


def _over_racks(cluster: ClusterState, machines: tuple[int, ...], gpus: int) -> list[int]:
    """The racks with most free GPUs whole, and for the rest the rack that fits it best."""
    by_rack: dict[int, list[int]] = {}
    for machine in machines:
        by_rack.setdefault(cluster.shape.racks[machine], []).append(machine)
    free = {rack: sum(cluster.counts[machine] for machine in group) for rack, group in by_rack.items()}
    chosen: list[int] = []
    while gpus:
        fitting = [(total, rack) for rack, total in free.items() if total >= gpus]
        rack = min(fitting)[1] if fitting else max(free, key=lambda rack: (free[rack], -rack))
        here = min(gpus, free.pop(rack))
        chosen += _packed(cluster, tuple(by_rack[rack]), here)
        gpus -= here
    return chosen


def _packed(cluster: ClusterState, machines: tuple[int, ...], gpus: int) -> list[int]:
    """The machines with most free GPUs whole, and for the rest the machine that fits it best."""
    free = {machine: cluster.counts[machine] for machine in machines if cluster.counts[machine]}
    chosen: list[int] = []
    while gpus:
        fitting = [(number, machine) for machine, number in free.items() if number >= gpus]
        machine = min(fitting)[1] if fitting else max(free, key=lambda machine: (free[machine], -machine))
        here = min(gpus, free.pop(machine))
        chosen.append(cluster.lowest(machine, here))
        gpus -= here
    return chosen


WISH = GpuRequest(pattern=Pattern.RING, sensitive=True)


class Planned:
    """A placement for machines with one link graph. Raises InvalidInput for machines of another number of GPUs.

    Traces know no workers: a job gets one per whole machine, and one for the rest.
    """

    def __init__(self, graph: LinkGraph) -> None:
        self._graph = graph

    def __call__(self, cluster: ClusterState, gpus: int) -> GpuSet | None:
        """What `plan_gang` decides; None for its rejections."""
        if cluster.gpus_per_machine != self._graph.size:
            given = f"machines of {cluster.gpus_per_machine} GPUs with a link graph of {self._graph.size}"
            raise InvalidInput(f"{given}; expected equal numbers")
        if cluster.free.bit_count() < gpus:
            return None
        plan = plan_gang(self._snapshot(cluster), Gang(JobUid("job"), 1, self._workers(gpus), WISH))
        if isinstance(plan, Rejection):
            return None
        return GpuSet(sum(cluster.on_machine(int(seat.node), mask_of(seat.gpus)) for seat in plan.seats))

    def _snapshot(self, cluster: ClusterState) -> Snapshot:
        every = self._graph.all_gpus
        names = {machine: NodeName(f"{machine:06}") for machine in range(cluster.machines)}
        states = (NodeState(name, self._graph, GpuMask(every & ~cluster.free_of(machine))) for machine, name in names.items())
        return Snapshot({state.name: state for state in states})

    def _workers(self, gpus: int) -> tuple[Worker, ...]:
        whole, rest = divmod(gpus, self._graph.size)
        sizes = [self._graph.size] * whole + [rest] * (rest > 0)
        return tuple(Worker(index, f"worker-{index}", PodUid(str(index)), size) for index, size in enumerate(sizes))


Placement = Callable[[ClusterState, int], GpuSet | None]

PLACEMENTS: Mapping[str, Placement] = {"count": count, "consolidated": consolidated, "levels": levels}


def placements_on(graph: LinkGraph | None) -> Mapping[str, Placement]:
    """All placements that machines with this link graph allow; without one those that need none."""
    return PLACEMENTS if graph is None else {**PLACEMENTS, "planned": Planned(graph)}
