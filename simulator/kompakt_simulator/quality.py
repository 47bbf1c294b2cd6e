"""How good the GPU sets are that jobs got, measured on a link graph."""

from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph
from kompakt_simulator.cluster import Cluster, GpuSet
from kompakt_simulator.simulation import Outcome


def ring_share(outcome: Outcome, cluster: Cluster, graph: LinkGraph) -> float | None:
    """Bandwidth of the ring through a job's GPUs as a share of the best of its size on an empty machine, mean over jobs.

    Counted are jobs of two GPUs up to one machine's; one that is spread over machines counts 0, since no ring of links
    inside a machine holds it. None when no such job ran. Raises InvalidInput when the graph has another number of GPUs.
    """
    if graph.size != cluster.gpus_per_machine:
        raise InvalidInput(
            f"machines of {cluster.gpus_per_machine} GPUs with a link graph of {graph.size}; expected equal numbers"
        )
    table = table_for(graph, Pattern.RING)
    best = {size: table.value(table.best(graph.all_gpus, size)) for size in range(2, graph.size + 1)}
    counted = [done for done in outcome.finished if best.get(done.job.gpus)]
    shares = [table.value(_on_one_machine(cluster, done.gpus)) / best[done.job.gpus] for done in counted]
    return sum(shares) / len(shares) if shares else None


def _on_one_machine(cluster: Cluster, gpus: GpuSet) -> int:
    """The set as a mask of its machine; empty when it is spread."""
    lowest = (gpus & -gpus).bit_length() - 1
    mask = gpus >> lowest // cluster.gpus_per_machine * cluster.gpus_per_machine
    return mask if mask < 1 << cluster.gpus_per_machine else 0
