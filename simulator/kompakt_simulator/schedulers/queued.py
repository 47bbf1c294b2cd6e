"""One queue in a fixed order; who runs runs to its end.

The queue is kept per number of GPUs: where no two jobs of one size differ in what they need, one refusal speaks for all.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from kompakt_simulator.placements.table import Placement
from kompakt_simulator.task import Task
from kompakt_simulator.world import Instant, World

Key = Callable[[World, Task], float]
_Entry = tuple[float, tuple[int, int], Task]  # key, tie: unique, so that two tasks are never compared


class Queued:
    """`skips`: a job that cannot be placed is passed over and nothing is reserved for it; else it blocks all behind it."""

    def __init__(self, place: Placement, key: Key, skips: bool) -> None:
        self._place = place
        self._key = key
        self._skips = skips
        self._by_size: dict[int, list[_Entry]] = {}

    def step(self, world: World, instant: Instant) -> None:
        """One pass over the queue.

        A size that was refused is not tried again in the same pass: GPUs only become fewer while it lasts, and a
        placement that refuses a size also refuses it with fewer free GPUs.
        """
        for task in instant.arrived:
            heappush(self._by_size.setdefault(task.gpus, []), (self._key(world, task), world.tie(task), task))
        sizes = set(self._by_size)
        while sizes:
            size = min(sizes, key=lambda size: self._by_size[size][0][:2])
            gpus = self._place(world.cluster, size)
            if gpus is not None:
                world.assign(self._pop(size), gpus)
                sizes &= self._by_size.keys()
            elif self._skips:
                sizes.discard(size)
            else:
                return

    def _pop(self, size: int) -> Task:
        task = heappop(self._by_size[size])[2]
        if not self._by_size[size]:
            del self._by_size[size]
        return task
