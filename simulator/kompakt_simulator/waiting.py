"""The queue, kept per number of GPUs: where no two jobs of one size differ in what they need, one refusal speaks for all."""

from collections.abc import Callable
from heapq import heappop, heappush

from kompakt_simulator.policies.policy import Policy, Waiting

_Entry = tuple[int, int, Waiting]  # key, job number: unique, so that two Waiting are never compared


class Queue:
    """Waiting jobs in the order of one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_size: dict[int, list[_Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_size)

    def push(self, waiting: Waiting) -> None:
        """Put a job in its place."""
        entry = (self._policy.key(waiting), waiting.job.number, waiting)
        heappush(self._by_size.setdefault(waiting.job.gpus, []), entry)

    def admit(self, start: Callable[[Waiting], bool]) -> None:
        """One pass: try the jobs in order, remove those that `start` accepts.

        A size that was refused is not tried again in the same pass: GPUs only become fewer while it lasts, and a
        placement that refuses a size also refuses it with fewer free GPUs.
        """
        sizes = set(self._by_size)
        while sizes:
            size = min(sizes, key=self._head)
            if start(self._by_size[size][0][2]):
                self._drop_head(size)
                sizes &= self._by_size.keys()
            elif self._policy.skips:
                sizes.discard(size)
            else:
                return

    def _head(self, size: int) -> tuple[int, int]:
        key, number, _ = self._by_size[size][0]
        return key, number

    def _drop_head(self, size: int) -> None:
        heappop(self._by_size[size])
        if not self._by_size[size]:
            del self._by_size[size]
