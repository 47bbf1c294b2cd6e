"""What a scheduler without knowledge of durations has learnt from the jobs that ended."""

from collections.abc import Iterable

from kompakt_core.policy.order import bin_of, ranks

GROWTH = 1.1  # how many times more jobs have ended when the ranks are worked out again


class History:
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
