"""Any free GPUs will do: the lowest ones."""

from kompakt_simulator.cluster import Cluster, GpuSet, lowest_of


def count(cluster: Cluster, gpus: int) -> GpuSet | None:
    """The `gpus` lowest free GPUs of the cluster, None if there are fewer."""
    return lowest_of(cluster.free, gpus) if cluster.free.bit_count() >= gpus else None
