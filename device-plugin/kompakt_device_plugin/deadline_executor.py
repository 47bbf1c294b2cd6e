"""Work beside a call of kubelet's: waited for no longer than the call may take, whatever hangs."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from typing import Any, Final, Generic, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
THREADS: Final = 2  # one that hangs leaves one for the next call; kubelet makes its calls one after the other


class DeadlineExecutor:
    """One kind of work in threads of its own: what hangs there holds up no other kind."""

    def __init__(self, name: str, threads: int = THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, name)

    def begin(self, work: Callable[..., T], *arguments: Any) -> "DeadlineTask[T]":
        """Starts `work`; never waits."""
        return DeadlineTask(self._threads.submit(work, *arguments))


class DeadlineTask(Generic[T]):
    """Work that was begun. Whoever gives up on it takes it out of the queue, where it would be done for nobody."""

    def __init__(self, future: "Future[T]") -> None:
        self._future = future
        self.done = future.done

    def then(self, call: Callable[[], None]) -> None:
        """Calls this when the work has ended or was given up, in any thread."""
        self._future.add_done_callback(lambda _: call())

    def ended(self, seconds: float) -> bool:
        """Whether it came to its end after at most so many seconds, without an error; that it did not is logged."""
        try:
            self._future.result(max(0.0, seconds))
        except TooSlow:
            self._future.cancel()
            log.warning("no answer in time")
            return False
        except Exception as error:
            log.warning("no answer: %s", error)
            return False
        return True

    @property
    def trouble(self) -> BaseException | None:
        """The error in which it ended; None where it did not."""
        return self._future.exception(0) if self._future.done() and not self._future.cancelled() else None

    def result(self) -> T:
        """What came of it, once it has `ended`."""
        return self._future.result(0)


class CallDeadline:
    """The seconds that one call may wait in all, for whatever it waits."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._until = clock, clock() + seconds

    @property
    def left(self) -> float:
        """What is left of them; never below 0."""
        return max(0.0, self._until - self._clock())
