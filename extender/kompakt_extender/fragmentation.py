"""How broken up the free GPUs are, node by node, computed when Prometheus asks."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_core.topology.graph import LinkGraph, SharedGraph
from kompakt_extender.explain.nodes import SIZES, best_ring
from kompakt_extender.explain.survey import unhurried

_BYTES: Final = 1_000_000  # in a MB, as in MB/s
_Key = tuple[SharedGraph, int]
_Values = tuple[tuple[int, int], ...]  # (GPUs, MB/s)


class FragmentationCollector(Collector):
    """Gauges about the nodes that `look` was given last. Nodes of one kind with the same free GPUs are computed once."""

    def __init__(self) -> None:
        self._states: Mapping[NodeName, NodeState] = {}
        self._known: dict[_Key, _Values] = {}

    def look(self, states: Mapping[NodeName, NodeState]) -> None:
        """What the next collection is about."""
        self._states = states

    def collect(self) -> Iterable[Metric]:
        """One gauge per node and size, and one per size for an empty node."""
        left = GaugeMetricFamily(
            "kompakt_node_ring_left_bytes_per_second",
            "Slowest link of the best Ring of that many GPUs among a node's free ones, one direction, in bytes per second; "
            "0 where fewer are free",
            labels=["node", "gpus"],
        )
        ideal = GaugeMetricFamily(
            "kompakt_ring_ideal_bytes_per_second",
            "Slowest link of the best Ring of that many GPUs on an empty node of the cluster, in bytes per second",
            labels=["gpus"],
        )
        graphs: dict[SharedGraph, LinkGraph] = {}
        states, fresh = self._states, dict[_Key, _Values]()
        for state in unhurried(states.values()):
            if state.graph is not None:
                graphs[state.graph.shared] = state.graph
                for size, value in self._values(state.graph, state.free, fresh):
                    left.add_metric([state.name, str(size)], value * _BYTES)
        for size, best in self._ideal(graphs.values(), fresh):
            ideal.add_metric([str(size)], best * _BYTES)
        self._known = fresh  # what no node shows any more is forgotten
        return (left, ideal)

    def _values(self, graph: LinkGraph, free: int, fresh: dict[_Key, _Values]) -> _Values:
        key = (graph.shared, free)
        if key not in fresh:
            sizes = (size for size in SIZES if size <= graph.size)
            fresh[key] = self._known.get(key) or tuple((size, best_ring(graph, free, size)) for size in sizes)
        return fresh[key]

    def _ideal(self, graphs: Iterable[LinkGraph], fresh: dict[_Key, _Values]) -> Iterator[tuple[int, int]]:
        best: dict[int, int] = {}
        for graph in graphs:
            for size, value in self._values(graph, graph.all_gpus, fresh):
                best[size] = max(value, best.get(size, 0))
        yield from sorted(best.items())

    def describe(self) -> Iterable[Metric]:
        """Nothing to say in advance: the registry would otherwise collect once at registration."""
        return ()
