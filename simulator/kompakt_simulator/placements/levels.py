"""The innermost level that has enough free GPUs, and in it the place that fits best: nobody waits for a better one."""

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import Cluster, GpuSet


def levels(cluster: Cluster, gpus: int) -> GpuSet | None:
    """The best fit at the best level there is; None when the cluster has fewer free GPUs."""
    level = best_level(cluster, gpus)
    return None if level is None else at_level(cluster, gpus, level)


def best_level(cluster: Cluster, gpus: int) -> Level | None:
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


def at_level(cluster: Cluster, gpus: int, level: Level) -> GpuSet:
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


def _over_racks(cluster: Cluster, machines: tuple[int, ...], gpus: int) -> list[int]:
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


def _packed(cluster: Cluster, machines: tuple[int, ...], gpus: int) -> list[int]:
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
