"""In which order sets are written on pods, so that no GPU stands on two of them at any moment. Pure."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from kompakt_core.ids import GpuUuid

Pod = TypeVar("Pod")
Set = frozenset[GpuUuid]
NOTHING: Set = frozenset()


def in_turn(changes: Mapping[Pod, Set], standing: Mapping[Pod, Set]) -> Iterator[tuple[Pod, Set]]:
    """The `changes` that can be made, in an order in which they can: (pod, what to write on it).

    `standing`: what stands on every pod that counts, those to be changed and others. A pod waits for those on which something of
    what it gets still stands. One that waits for a pod which is not changed is left out. Where pods wait for each other, NOTHING
    is written on one of them first; it comes again with what it gets.
    """
    left, now = dict(changes), dict(standing)
    while left:
        ready = next((pod for pod in left if not _before(pod, left, now)), None)
        if ready is not None:
            now[ready] = left.pop(ready)
            yield ready, now[ready]
        elif left := _among_themselves(left, now):
            emptied = _in_a_ring(left, now)
            now[emptied] = NOTHING
            yield emptied, NOTHING


def _before(pod: Pod, changes: Mapping[Pod, Set], now: Mapping[Pod, Set]) -> list[Pod]:
    """The pods for which this one waits."""
    return [other for other, on_it in now.items() if other != pod and on_it & changes[pod]]


def _among_themselves(changes: Mapping[Pod, Set], now: Mapping[Pod, Set]) -> dict[Pod, Set]:
    """Those that wait for nobody but each other."""
    left = dict(changes)
    while outside := [pod for pod in left if any(other not in left for other in _before(pod, changes, now))]:
        for pod in outside:
            del left[pod]
    return left


def _in_a_ring(changes: Mapping[Pod, Set], now: Mapping[Pod, Set]) -> Pod:
    """Whoever follows, from pod to pod, for whom each waits, has come into a ring after as many steps as there are pods."""
    pod = next(iter(changes))
    for _ in changes:
        pod = _before(pod, changes, now)[0]
    return pod
