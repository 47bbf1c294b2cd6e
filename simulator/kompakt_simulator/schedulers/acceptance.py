"""Who among the waiting jobs of one size takes the best level on offer, by what kompakt_core.policy says.

An answer changes by time, and when somebody joins. So a refusal by all of a size is kept until the first of them would accept.
"""

import math
from collections.abc import Iterable, Sequence

from kompakt_core.placement.model import Level
from kompakt_core.policy.delay import kompakt as decide
from kompakt_core.policy.model import Offer, Place, WaitUntil
from kompakt_simulator.schedulers.line import Entry
from kompakt_simulator.schedulers.moves import as_waiting
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.task import Task
from kompakt_simulator.world import World


class Acceptance:
    """Keeps which levels are closed to which sizes, and until when."""

    def __init__(self) -> None:
        self._closed: dict[int, dict[Level, float]] = {}  # until that millisecond nobody of that size accepts that level

    def joined(self, size: int) -> None:
        """Another job of this size waits: what its size has refused may be accepted."""
        self._closed.pop(size, None)

    def lined_up_anew(self) -> None:
        """All sizes are asked again."""
        self._closed.clear()

    def first(self, world: World, pool: Pool, size: int, entries: Sequence[Entry]) -> tuple[Entry, Level] | None:
        """The first of these waiting jobs, all of that size, that accepts the best level on offer, and the level."""
        level, levels = pool.level(size), world.cluster.shape.levels
        if level is None:
            return None
        if not levels.worse_than(level, levels.ideal(size)):
            return entries[0], level
        if world.now < self._closed.get(size, {}).get(level, -math.inf):
            return None
        until = math.inf
        for entry in entries:
            answer = decide(as_waiting(world, entry[-1]), Offer(levels, level), world.now / 1000)
            if isinstance(answer, Place):
                return entry, level
            if isinstance(answer, WaitUntil) and answer.at is not None:
                until = min(until, answer.at * 1000)
        self._closed.setdefault(size, {})[level] = until
        return None

    def opens(self, pool: Pool, sizes: Iterable[int]) -> float:
        """When the first of these sizes takes by time alone what is on offer; inf = never."""
        closed = ((self._closed[size], pool.level(size)) for size in sizes if size in self._closed)
        return min((until.get(level, math.inf) for until, level in closed if level is not None), default=math.inf)


def accepts(world: World, task: Task, level: Level) -> bool:
    """Whether a waiting job would take a place at this level now."""
    offer = Offer(world.cluster.shape.levels, level)
    return isinstance(decide(as_waiting(world, task), offer, world.now / 1000), Place)
