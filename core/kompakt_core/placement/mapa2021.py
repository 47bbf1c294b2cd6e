"""The policy that MAPA published, for comparison only: its "preserve" rule with its fitted bandwidth.

MAPA: Ranganath et al., "MAPA: Multi-Accelerator Pattern Allocation Policy for Multi-Tenant GPU Servers", SC'21; rules and
coefficients as in its published code (github.com/socal-ucr/MAPA, commit 15e58ab: src/MapaPolicies.hh, src/TopoUtils.hh).
Retold here in our own words, with its weaknesses, which the tests pin:

1. Every pair without NVLink is PCIe; a pair of two lanes and more is "double", of one "single".
2. A sensitive job of two and more GPUs takes the set with the highest predicted effective bandwidth of its ring; any
   other job the set that leaves the most NVLink behind, ties by the sum of its ring.
3. A set must score strictly above the empty allocation, which the prediction rates positive. So some sets are never
   taken, and a job waits although it fits: of the 247 sets of two and more free GPUs of a DGX-1 V100, 12 block a sensitive
   job of two; of 219, 34 one of three. A job that does not need bandwidth is never placed where nothing would be left.
4. The prediction is not monotone: from 5 GPUs on it can prefer a ring without any double NVLink.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, pairwise, permutations
from typing import Final

from kompakt_core.ids import GpuIndex, GpuMask, MegabytesPerSecond, indices_of, mask_of
from kompakt_core.patterns.names import Measure
from kompakt_core.placement.fit import shortage
from kompakt_core.placement.model import Choice, GpuRequest, Reason, Rejection
from kompakt_core.topology.graph import NVLINK_KINDS, LinkGraph, SharedGraph

PCIE: Final = 10  # GB/s of every pair without NVLink, in MAPA's hardware graphs
MAX_GPUS: Final = 8  # it scores every order of every set


def effective_bandwidth(double: int, single: int, pcie: int) -> float:
    """Predicted GB/s of a ring of so many double and single NVLinks and PCIe links: the published least-squares fit."""
    x, y, z = double, single, pcie
    return (
        16.39670455 * x
        + 4.536821878 * y
        + 1.55623404 * z
        - 20.69484581 / (x + 1)
        - 9.467461958 / (y + 1)
        + 7.615106783 / (z + 1)
        - 7.973335727 * x * y
        + 12.73323772 * y * z
        - 4.195655221 * x * z
        - 8.413419363 / (x * y + 1)
        + 62.85125807 / (y * z + 1)
        + 27.41832588 / (x * z + 1)
        - 5.114108079 * x * y * z
        - 46.97390071 / (x * y * z + 1)
    )


EMPTY: Final = effective_bandwidth(0, 0, 0)


def mapa2021(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest) -> Choice | Rejection:
    """The set that MAPA's published policy takes; Reason.MAPA_BLOCKED where it takes none although the job fits.

    `gpu_request`: only `sensitive` counts; the pattern is a Ring. Value and second of the answer are ours, by the sum first, as
    MAPA scores. Machines of more than 8 GPUs are refused: it scores every order.
    """
    if graph.size > MAX_GPUS:
        return Rejection(Reason.TOO_MANY_GPUS, have=graph.size, need=MAX_GPUS, detail="mapa2021")
    if rejection := shortage(graph, free, size):
        return rejection
    sensitive = gpu_request.sensitive and size > 1
    best: tuple[float, float] = (EMPTY, 0) if sensitive else (0, 0)
    found: Sequence[GpuIndex] | None = None
    for gpus in combinations(indices_of(free), size):
        predicted, total, order = _rings(graph.shared)[mask_of(gpus)]
        left = _preserved(graph, free & ~mask_of(gpus))
        score = (predicted, 0.0) if sensitive else (left, total)
        if score > best:
            best, found = score, order
    if found is None:
        return Rejection(Reason.MAPA_BLOCKED, have=free.bit_count(), need=size)
    return _answer(graph, tuple(found), gpu_request.measure)


def _answer(graph: LinkGraph, order: tuple[GpuIndex, ...], measure: Measure) -> Choice:
    links = [graph.weights[a][b] for a, b in _ring(order)]
    total, slowest = MegabytesPerSecond(sum(links)), MegabytesPerSecond(min(links, default=0))
    value, second = (total, slowest) if measure is Measure.SUM else (slowest, total)
    return Choice(GpuMask(mask_of(order)), order, value, second)


@lru_cache(maxsize=16)
def _rings(shared: SharedGraph) -> dict[int, tuple[float, float, tuple[GpuIndex, ...]]]:
    """For every set: the best prediction over its rings, the sum (GB/s) of its best ring, and the predicted ring."""
    graph = shared.graph
    found = {}
    for mask in range(1 << graph.size):
        gpus = indices_of(mask)
        # One start and one direction of each ring are enough.
        orders = [(*gpus[:1], *rest) for rest in permutations(gpus[1:]) if len(rest) < 2 or rest[0] < rest[-1]]
        rated = [(effective_bandwidth(*_mix(graph, order)), order) for order in orders]
        predicted, order = max(rated, key=lambda one: one[0])
        found[mask] = (predicted, max(sum(_gigabytes(graph, a, b) for a, b in _ring(one)) for one in orders), order)
    return found


def _ring(order: Sequence[GpuIndex]) -> list[tuple[GpuIndex, GpuIndex]]:
    closing = [(order[-1], order[0])] if len(order) > 2 else []
    return [*pairwise(order), *closing]


def _mix(graph: LinkGraph, order: Sequence[GpuIndex]) -> tuple[int, int, int]:
    """How many double, single and PCIe links the ring has."""
    lanes = [_lanes(graph, a, b) for a, b in _ring(order)]
    return sum(n > 1 for n in lanes), lanes.count(1), lanes.count(0)


def _lanes(graph: LinkGraph, a: int, b: int) -> int:
    link = graph.link(a, b)
    return link.lanes if link.kind in NVLINK_KINDS else 0


def _gigabytes(graph: LinkGraph, a: int, b: int) -> float:
    return graph.link(a, b).megabytes_per_second / 1000 if _lanes(graph, a, b) else PCIE


def _preserved(graph: LinkGraph, left: int) -> float:
    """GB/s of all NVLink pairs among the GPUs that stay free."""
    return sum(_gigabytes(graph, a, b) for a, b in combinations(indices_of(left), 2) if _lanes(graph, a, b))
