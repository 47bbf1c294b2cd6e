"""Schedulers that keep one order of waiting jobs and no leases: a fixed one, and one by remaining time with preemption."""

from bisect import bisect_left, insort
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import accumulate

from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.placements import Placement
from kompakt_simulator.world import Instant, SimulatedWorld

Key = Callable[[SimulatedWorld, SimulatedJob], float]
_Entry = tuple[float, tuple[int, int], SimulatedJob]  # key, tie: unique, so that two tasks are never compared


class Queued:
    """One queue in a fixed order; who runs runs to its end.

    It is kept per number of GPUs: where no two jobs of one size differ in what they need, one rejection speaks for all.
    `skips`: a job that cannot be placed is passed over and nothing is reserved for it; else it blocks all behind it.
    """

    def __init__(self, place: Placement, key: Key, skips: bool) -> None:
        self._place = place
        self._key = key
        self._skips = skips
        self._by_size: dict[int, list[_Entry]] = {}

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
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

    def _pop(self, size: int) -> SimulatedJob:
        task = heappop(self._by_size[size])[2]
        if not self._by_size[size]:
            del self._by_size[size]
        return task


_Tie = tuple[int, int]
_Chosen = tuple[float, _Tie, SimulatedJob]


class Shortest:
    """Whoever has the least left runs: at every arrival and completion the jobs that should run are chosen anew, free of cost.

    Chosen means: in the order of remaining time, each job that still finds its number among the GPUs not yet given. Walking that
    order from its start at every event would cost running jobs times events; three facts leave only its end to walk.
    - While jobs run their order among each other stays, and that of the waiting ones too.
    - A job that comes where enough GPUs are idle changes nothing for others; one that finds too few left at its place in the
      order changes nothing at all.
    - Otherwise only jobs behind the first one that no longer fits are decided anew.
    Jobs that go on keep their GPUs; those that start are placed in order, and who finds no place there waits.
    Where a network slows running jobs, they keep the place in the order that they had when they started.

    Running jobs are kept by the moment of their end, waiting ones by remaining time, one sorted list per number of GPUs.
    """

    def __init__(self, place: Placement) -> None:
        self._place = place
        self._chosen: list[_Chosen] = []  # (end if it runs on, tie, task)
        self._in: list[_Chosen] = []  # chosen at this instant
        self._out: list[SimulatedJob] = []  # dropped at this instant
        self._waiting: dict[int, list[_Chosen]] = {}  # size -> (remaining, tie, task)

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
        """Choose anew, stop who is out, place who is in."""
        if instant.ended:
            ended = {task.number for task in instant.ended}
            self._chosen = [entry for entry in self._chosen if entry[2].number not in ended]
        for task in instant.arrived:
            insort(self._waiting.setdefault(task.gpus, []), (world.remaining(task), world.tie(task), task))
        self._in.clear()
        self._out.clear()
        self._choose(world)
        self._apply(world)

    def _choose(self, world: SimulatedWorld) -> None:
        """Take in, one after the other, the earliest waiting job that has room at its place; drop behind it who has not."""
        bound = (-1.0, (-1, -1))  # jobs before it are decided
        while (found := self._first_fitting(world, bound)) is not None:
            size, index = found
            remaining, tie, task = self._waiting[size].pop(index)
            if not self._waiting[size]:
                del self._waiting[size]
            entry = (world.now + remaining, tie, task)
            insort(self._chosen, entry)
            self._in.append(entry)
            self._drop_behind(world)
            bound = (remaining, tie)

    def _first_fitting(self, world: SimulatedWorld, bound: tuple[float, _Tie]) -> tuple[int, int] | None:
        """(size, index) of the first waiting job beyond `bound` with its number of GPUs left at its place in the order."""
        taken = [0, *accumulate(entry[2].gpus for entry in self._chosen)]
        best: tuple[float, _Tie, int, int] | None = None
        for size, entries in self._waiting.items():
            index = bisect_left(entries, bound)
            if index == len(entries):
                continue
            remaining, tie, _ = entries[index]
            if best is not None and (remaining, tie) > best[:2]:
                continue
            place = bisect_left(self._chosen, (world.now + remaining, tie))
            if world.cluster.size - taken[place] >= size:
                best = (remaining, tie, size, index)
        return None if best is None else best[2:]

    def _drop_behind(self, world: SimulatedWorld) -> None:
        """Back to waiting with those that no longer fit, each as it comes in the order."""
        taken = 0
        for index, entry in enumerate(self._chosen):
            taken += entry[2].gpus
            if taken > world.cluster.size:
                self._drop_from(world, index, world.cluster.size - taken + entry[2].gpus)
                return

    def _drop_from(self, world: SimulatedWorld, index: int, left: int) -> None:
        tail, self._chosen[index:] = self._chosen[index:], []
        for entry in tail:
            if entry[2].gpus <= left:
                left -= entry[2].gpus
                self._chosen.append(entry)
            else:
                self._out.append(entry[2])
                self._put_back(world, entry[2])

    def _put_back(self, world: SimulatedWorld, task: SimulatedJob) -> None:
        insort(self._waiting.setdefault(task.gpus, []), (world.remaining(task), world.tie(task), task))

    def _apply(self, world: SimulatedWorld) -> None:
        chosen_again = {entry[2].number for entry in self._in}
        out = {task.number for task in self._out}
        for task in self._out:
            if task.held and (task.number not in chosen_again or self._is_out(task)):
                world.stop(task)
        for entry in sorted(self._in):
            task = entry[2]
            if task.held or (task.number in out and self._is_out(task)):
                continue
            gpus = self._place(world.cluster, task.gpus)
            if gpus is None:
                self._chosen.remove(entry)
                self._put_back(world, task)
            else:
                world.assign(task, gpus)

    def _is_out(self, task: SimulatedJob) -> bool:
        """Whether a job that was both dropped and chosen at this instant ended up outside."""
        return all(entry[2] is not task for entry in self._chosen)
