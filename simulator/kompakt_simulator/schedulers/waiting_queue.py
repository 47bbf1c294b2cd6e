"""The waiting jobs of `kompakt` in one order: by priority, then by key, then by the last change, then by number.

The key is the rank of a job's service, which says how soon jobs of that service are likely to end, then its submission; where
jobs declare their work it is the GPU service left.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from kompakt_core.policy.order import bin_of, ranks
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.setting import Knowledge
from kompakt_simulator.world import SimulatedWorld

GROWTH = 1.1  # how many times more jobs have ended when the ranks are worked out again


class ServiceHistory:
    """Ranks by service in GPU-hours; `told` counts how often they changed."""

    def __init__(self) -> None:
        self._ended: list[float] = []
        self._due = 1.0
        self._ranks = ranks((), ())

    def add(self, gpu_hours: float) -> None:
        """A job has ended after so much service."""
        self._ended.append(gpu_hours)

    @property
    def due(self) -> bool:
        """Whether so many have ended since the ranks were worked out that they are worth working out again."""
        return len(self._ended) >= self._due

    def learn(self, alive: Iterable[float]) -> None:
        """Works the ranks out again; `alive`: the service so far of all jobs that have not ended."""
        self._ranks = ranks(self._ended, alive)
        self._due = GROWTH * len(self._ended) + 1

    def rank(self, gpu_hours: float) -> int:
        """Of a job with so much service; lower ranks go first."""
        return self._ranks[bin_of(gpu_hours)]


HOUR_MS = 3_600_000
CLASS = 1e15  # part of a key; more milliseconds than any submission
LOOK_AT_MOST = 30  # waiting jobs, in order, whenever somebody could be stopped for them

# Minus priority, key, since, number, and whose they are: unique before the job, so that two jobs are never compared.
QueueEntry = tuple[int, float, int, int, SimulatedJob]


class WaitingQueue:
    """`by_size`: who waits, by number of GPUs, each in order; no size without jobs."""

    def __init__(self) -> None:
        self.by_size: dict[int, list[QueueEntry]] = {}
        self._history = ServiceHistory()

    def key(self, world: SimulatedWorld, task: SimulatedJob) -> float:
        """The lowest goes first."""
        if world.knowledge is Knowledge.NONE:
            return self._history.rank(_service(world, task)) * CLASS + task.job.submit
        shape = world.cluster.shape
        slowdown = world.setting.network.slowdowns(task.ratio, shape, task.gpus).get(shape.levels.ideal(task.gpus), 0.0)
        return task.gpus * world.remaining(task) * (1 + slowdown)

    def add(self, world: SimulatedWorld, task: SimulatedJob) -> None:
        """It waits from now on."""
        entry = -task.job.priority, self.key(world, task), task.since, task.number, task
        insort(self.by_size.setdefault(task.gpus, []), entry)

    def remove(self, entry: QueueEntry) -> None:
        """It waits no longer."""
        entries = self.by_size[entry[-1].gpus]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self.by_size[entry[-1].gpus]

    def of(self, task: SimulatedJob) -> QueueEntry:
        """The entry of a job that waits."""
        return next(entry for entry in self.by_size[task.gpus] if entry[-1] is task)

    def heads(self) -> list[QueueEntry]:
        """The first few of all."""
        return sorted(entry for entries in self.by_size.values() for entry in entries[:LOOK_AT_MOST])[:LOOK_AT_MOST]

    def learn(self, world: SimulatedWorld, ended: Sequence[SimulatedJob]) -> bool:
        """From the jobs that ended. Whether that changed ranks: then those who wait have lined up anew."""
        if world.knowledge is not Knowledge.NONE:
            return False
        for task in ended:
            self._history.add(_service(world, task))
        if not self._history.due:
            return False
        waiting = [entry[-1] for entries in self.by_size.values() for entry in entries]
        self._history.learn(_service(world, task) for task in (*waiting, *world.running.values()))
        self.by_size.clear()
        for task in waiting:
            self.add(world, task)
        return True


def _service(world: SimulatedWorld, task: SimulatedJob) -> float:
    """GPUs times hours of running."""
    return task.gpus * task.running(world.now) / HOUR_MS
