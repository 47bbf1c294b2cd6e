"""As few machines as possible, or wait: wholly empty machines, and for the rest the fullest machine that still holds it."""

from kompakt_simulator.cluster import Cluster, GpuSet


def consolidated(cluster: Cluster, gpus: int) -> GpuSet | None:
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
