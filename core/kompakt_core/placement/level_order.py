"""Ranks along the levels of the network: which of a gang's nodes follows which, and which worker sits where."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from kompakt_core.ids import NodeName
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.collective_cost import Collective, Costs
from kompakt_core.placement.model import Gang, Level, Snapshot
from kompakt_core.placement.rank_mapping import Seating
from kompakt_core.placement.rank_order import MAX_SEARCHED, best_order
from kompakt_core.placement.seating import kinds_of
from kompakt_core.profile.sensitivity import LEVEL_FACTORS

STEPS: Final = 5_000  # of a search while gangs wait: some hundredths of a second
# Whole numbers, so that equal orders cost the same to the last bit.
LEVEL_COSTS: Final = {Level(name): round(20 * factor) for name, factor in LEVEL_FACTORS.items()}

Path = tuple[str, str]  # block and rack


def in_rank_order(seating: Seating, gang: Gang, snapshot: Snapshot, labels: Mapping[Level, str]) -> Seating:
    """The seats in order of ranks. Workers with equal demands may have changed seats, nothing else.

    Rank 0 is the first worker that has GPUs, on the node that it had. Its node's workers follow, then node by node, rack by rack
    and block by block; workers without GPUs come last. Workers on one node, and those with equal demands, rank by index.
    """
    by_index = sorted(seating, key=lambda seat: (seat[0].gpus == 0, seat[0].index))
    nodes = list(dict.fromkeys(node for _, node, _ in by_index))
    if len(nodes) == 1:
        return by_index
    pods = Counter(node for worker, node, _ in by_index if worker.gpus)
    order = _ordered(pods, gang.gpu_request.pattern, snapshot, labels)
    place = {node: number for number, node in enumerate([*order, *nodes[len(order) :]])}
    return sorted(_moved(seating, place), key=lambda seat: (seat[0].gpus == 0, place[seat[1]], seat[0].index))


def _ordered(pods: Mapping[NodeName, int], pattern: Pattern, snapshot: Snapshot, labels: Mapping[Level, str]) -> list[NodeName]:
    """For a ring no order is better than one that leaves no rack, and no block, before it is through."""
    nodes = list(pods)
    paths = {node: _path(node, snapshot, labels) for node in nodes}
    nodes = _grouped(paths)
    if pattern is not Pattern.TREE or not 2 < len(nodes) <= MAX_SEARCHED:
        return nodes
    order = _tree_order(tuple(pods[node] for node in nodes), _numbered([paths[node] for node in nodes]))
    return [nodes[i] for i in order]


@lru_cache(maxsize=1024)
def _tree_order(pods: tuple[int, ...], places: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """The search begins with the nodes as they are, and keeps them so where no order is cheaper."""
    return best_order(Collective.TREE, pods, _level_costs(places), STEPS).nodes


def _numbered(paths: Sequence[Path]) -> tuple[tuple[int, int], ...]:
    """Block and rack by numbers, so that gangs on other racks, spread alike, have one answer."""
    blocks = {path[0]: number for number, path in enumerate(reversed(paths))}
    racks = {path: number for number, path in enumerate(reversed(paths))}
    return tuple((blocks[path[0]], racks[path]) for path in paths)


def _path(node: NodeName, snapshot: Snapshot, labels: Mapping[Level, str]) -> Path:
    """A node without a rack's label shares no rack. Those without a block's label share one, unlike in rank_mapping: nodes of two
    blocks share no rack, so a cluster that names no blocks would have none. SeatSearch.domains takes it so too.
    """
    own = snapshot.nodes[node].labels
    return own.get(labels.get(Level.BLOCK, ""), ""), own.get(labels.get(Level.RACK, ""), "") or f"/{node}"


def _grouped(paths: Mapping[NodeName, Path]) -> list[NodeName]:
    """Blocks and racks in the order in which they appear first, the nodes of each as they were."""
    blocks: dict[str, int] = {}
    racks: dict[Path, int] = {}
    for path in paths.values():
        blocks.setdefault(path[0], len(blocks))
        racks.setdefault(path, len(racks))
    return sorted(paths, key=lambda node: (blocks[paths[node][0]], racks[paths[node]]))


def _level_costs(places: Sequence[tuple[int, int]]) -> Costs:
    def level(one: int, two: int) -> Level:
        if one == two:
            return Level.MACHINE
        if places[one] == places[two]:
            return Level.RACK
        return Level.BLOCK if places[one][0] == places[two][0] else Level.CLUSTER

    numbers = range(len(places))
    return [[LEVEL_COSTS[level(one, two)] for two in numbers] for one in numbers]


def _moved(seating: Seating, place: Mapping[NodeName, int]) -> Seating:
    """The seats of each kind of workers in the order of their nodes, given out by index."""
    seat_of = {id(worker): (node, choice) for worker, node, choice in seating}  # pods without an index share one
    seats: Seating = []
    for workers in kinds_of([worker for worker, _, _ in seating]):  # each kind by index
        places = sorted((seat_of[id(worker)] for worker in workers), key=lambda one: place[one[0]])
        seats += [(worker, node, choice) for worker, (node, choice) in zip(workers, places, strict=True)]
    return seats
