"""Places for pods that join others of their gang, which have theirs already: as near to those as there is room."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Gang, Level, NodeState, Snapshot
from kompakt_core.placement.seating import WIDENING


def nearest_first(
    gang: Gang, snapshot: Snapshot, beside: Collection[NodeName], labels: Mapping[Level, str]
) -> Iterator[tuple[Level, Gang]]:
    """The gang with other nodes left out, level by level from the narrowest that it has with these nodes, up to the one it needs.

    A level without a label is none. Nodes that are gone count no more.
    """
    there = [snapshot.nodes[name] for name in beside if name in snapshot.nodes]
    for level in WIDENING[: WIDENING.index(gang.required_level) + 1]:
        if level is Level.MACHINE or level is Level.CLUSTER or level in labels:
            domains = {_domain(state, level, labels) for state in there}
            if len(domains) <= 1 and "" not in domains:
                out = {name for name, state in snapshot.nodes.items() if domains and _domain(state, level, labels) not in domains}
                yield level, replace(gang, excluded=gang.excluded | out)


def _domain(state: NodeState, level: Level, labels: Mapping[Level, str]) -> str | tuple[str, ...]:
    """What nodes share at that level; "" for a node that shares it with none. A rack's name need not be unique among blocks."""
    if level is Level.MACHINE:
        return state.name
    if level is Level.CLUSTER:
        return ("all",)
    wider = [labels[one] for one in WIDENING[WIDENING.index(level) + 1 :] if one in labels]
    own = state.labels.get(labels[level], "")
    return (own, *(state.labels.get(one, "") for one in wider)) if own else ""
