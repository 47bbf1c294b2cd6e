"""Any free GPUs will do: the lowest ones."""

from kompakt_simulator.cluster import Cluster, GpuSet


def count(cluster: Cluster, gpus: int) -> GpuSet | None:
    """The `gpus` lowest free GPUs of the cluster, None if there are fewer."""
    rest: int = cluster.free
    if rest.bit_count() < gpus:
        return None
    for _ in range(gpus):
        rest &= rest - 1  # clears the lowest set bit
    return GpuSet(cluster.free & ~rest)
