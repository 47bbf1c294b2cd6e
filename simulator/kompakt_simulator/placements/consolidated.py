"""As few machines as possible, or wait: wholly empty machines, and for the rest the fullest machine that still holds it."""

from kompakt_core.ids import GpuMask
from kompakt_simulator.cluster import Cluster, GpuSet
from kompakt_simulator.placements.count import count


def consolidated(cluster: Cluster, gpus: int) -> GpuSet | None:
    """floor(gpus / machine) empty machines plus one for the remainder, lowest index on ties; None if that is not free."""
    if cluster.free.bit_count() < gpus:
        return None
    whole, rest = divmod(gpus, cluster.gpus_per_machine)
    free = [cluster.free_of(machine) for machine in range(cluster.machines)]
    all_free = GpuMask((1 << cluster.gpus_per_machine) - 1)
    empty = [machine for machine, mask in enumerate(free) if mask == all_free][:whole] if whole else []
    if len(empty) < whole:
        return None
    chosen: int = sum(cluster.on_machine(machine, all_free) for machine in empty)
    if rest:
        taken = set(empty)
        holds = [
            (mask.bit_count(), machine) for machine, mask in enumerate(free) if mask.bit_count() >= rest and machine not in taken
        ]
        if not holds:
            return None
        chosen |= _lowest(cluster, min(holds)[1], rest)
    return GpuSet(chosen)


def _lowest(cluster: Cluster, machine: int, gpus: int) -> GpuSet:
    only = Cluster(1, cluster.gpus_per_machine, GpuSet(cluster.free_of(machine)))
    chosen = count(only, gpus)
    assert chosen is not None
    return cluster.on_machine(machine, GpuMask(chosen))
