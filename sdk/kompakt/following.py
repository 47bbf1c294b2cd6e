"""A TrainingJob until it is over: its phases as they come, and what its workers print."""

import queue
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from kompakt.errors import NoAnswer
from kompakt.job_logs import Line, LoggedWorker, Position, follow, printed, workers_of
from kompakt.standing import told, why
from kompakt.training_jobs import Document, TrainingJobs, in_words, owner_of
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.errors import InvalidInput
from kompakt_core.job.phases import FINISHED

PAUSE_SECONDS: Final = 1.0
MOST_WORKERS: Final = 64  # connections at a time
Ranks = Callable[[int], bool]


@dataclass(slots=True)
class _OpenLog:
    """One worker's log: how far it is read, by which thread, and whether nothing can be missing any more."""

    position: Position = field(default_factory=Position)
    thread: threading.Thread | None = None
    whole: bool = False
    trouble: str = ""

    @property
    def alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class _LogsClosed(Exception):
    """Nobody reads the lines any more."""


def every_rank(rank: int) -> bool:
    """All workers are meant."""
    return True


class JobLogs:
    """What all workers of a job print, attempt after attempt. A log whose connection breaks is read on where it was."""

    def __init__(self, jobs: TrainingJobs, container: str = "", ranks: Ranks = every_rank) -> None:
        self._jobs, self._container, self._ranks = jobs, container, ranks
        self._readings: dict[str, _OpenLog] = {}  # by the pod's uid
        self._closed = threading.Event()
        self.arrived: queue.SimpleQueue[Line] = queue.SimpleQueue()

    def close(self) -> None:
        """Read no more: each thread ends at its worker's next line, or when its connection has been silent for long."""
        self._closed.set()

    def look(self, owner: JobOwner, attempt: int, tail: int | None) -> None:
        """Begin to read workers that have begun to run, and go on where a log broke. Raises InvalidInput for too many."""
        workers = [one for one in workers_of(self._jobs.pods(owner), owner, attempt, self._container) if self._ranks(one.index)]
        too_many(len(workers))
        for one in workers:
            reading = self._readings.setdefault(one.uid, _OpenLog())
            if not (reading.alive or reading.whole):
                self._begin(one, reading, tail)
        self._leave({one.uid for one in workers})

    def _leave(self, there: Collection[str]) -> None:
        """Of pods that are gone there is no more to come than what is being read."""
        for uid, reading in self._readings.items():
            reading.whole |= uid not in there and not reading.alive

    @property
    def whole(self) -> bool:
        """Whether nothing of what was found is missing."""
        return all(one.whole for one in self._readings.values())

    def troubles(self) -> list[str]:
        """What broke, in words; each one once."""
        found = [one.trouble for one in self._readings.values() if one.trouble]
        for one in self._readings.values():
            one.trouble = ""
        return found

    def _begin(self, worker: LoggedWorker, reading: _OpenLog, tail: int | None) -> None:
        reading.thread = threading.Thread(target=self._read, args=(worker, reading, tail), daemon=True)
        reading.thread.start()

    def _read(self, worker: LoggedWorker, reading: _OpenLog, tail: int | None) -> None:
        """A log that ends while the container runs is read on; one that began after its end was read to its end."""
        from kompakt_client.errors import ApiError, Rejected

        try:
            follow(self._jobs, worker, reading.position, tail, self._put)
            reading.whole = worker.ended
        except _LogsClosed:
            reading.whole = True
        except Rejected as error:  # the pod is gone, or may not be read
            reading.whole, reading.trouble = True, f"{worker.name}: no more of its log: {error.message}"
        except ApiError:
            pass  # read on at the next look

    def _put(self, line: Line) -> None:
        if self._closed.is_set():
            raise _LogsClosed
        self.arrived.put(line)


@dataclass(slots=True)
class WatchedJob:
    """How a job is watched. `on_change` hears the job when its phase, its attempt or what it waits for is another one,
    `on_trouble` why a worker's log cannot be read. `patience`: seconds that the API server may be away."""

    jobs: TrainingJobs
    owner: JobOwner
    logs: JobLogs | None = None
    tail: int | None = None
    on_change: Callable[[Document], object] = lambda job: None
    on_trouble: Callable[[str], object] = lambda trouble: None
    sleep: Callable[[float], None] = time.sleep
    patience: float = 0.0
    job: Document = field(default_factory=dict, init=False)  # as it was last seen
    _before: tuple[object, ...] = field(default=(), init=False)

    def ended(self) -> Document:
        """The job once it is over. Raises as `lines`."""
        for _ in self.lines():
            pass
        return self.job

    def lines(self) -> Iterator[Line]:
        """What its workers print, until it is over and all is read.

        Raises JobNotFound where it is deleted meanwhile, NoAnswer where the API server is away for longer than `patience`.
        """
        try:
            yield from self._until_over()
        finally:
            if self.logs is not None:
                self.logs.close()

    def _until_over(self) -> Iterator[Line]:
        heard = time.monotonic()
        while True:
            try:
                over = yield from self._once()
                heard = time.monotonic()
            except NoAnswer:
                over = False
                if time.monotonic() - heard >= self.patience:
                    raise
            if over and (self.logs is None or self.logs.whole):
                yield from self._arrived()
                return
            self.sleep(PAUSE_SECONDS)

    def _once(self) -> Generator[Line, None, bool]:
        """What has arrived; whether the job is over."""
        self.job = self.jobs.get_of(self.owner)
        status = self.job.get("status") or {}
        if (now := (status.get("phase"), status.get("attempt"), why(status))) != self._before:
            self.on_change(self.job)
            self._before = now
        yield from self._read(int(status.get("attempt") or 0))
        return status.get("phase") in FINISHED

    def _read(self, attempt: int) -> Iterator[Line]:
        if self.logs is not None:
            self.logs.look(self.owner, attempt, self.tail)
            yield from self._arrived()
            for trouble in self.logs.troubles():
                self.on_trouble(trouble)

    def _arrived(self) -> Iterator[Line]:
        while self.logs is not None and not self.logs.arrived.empty():
            yield self.logs.arrived.get()


def until_now(jobs: TrainingJobs, job: Document, container: str, ranks: Ranks, tail: int | None) -> Iterator[Line]:
    """What the workers of the current attempt have printed, merged by time.

    Raises InvalidInput where none has begun to run, for too many of them, and for what the API server refuses.
    """
    owner, attempt = owner_of(job), int((job.get("status") or {}).get("attempt") or 0)
    workers = [one for one in workers_of(jobs.pods(owner), owner, attempt, container) if ranks(one.index)]
    if not workers:
        raise InvalidInput(f"{told(job)}; no worker has begun to run; `kompakt explain job {owner.name}` tells more")
    too_many(len(workers))
    with in_words():
        yield from printed(jobs, workers, tail)


def too_many(workers: int) -> None:
    """Raises InvalidInput for more workers than are read at a time."""
    if workers > MOST_WORKERS:
        raise InvalidInput(
            f"{workers} workers are more than {MOST_WORKERS} at a time; choose some with --ranks 0-7, in Python ranks=range(8)"
        )


def paused(timeout: float | None, over: Callable[[], str]) -> Callable[[float], None]:
    """Sleeps so long; once `timeout` seconds are over raises TimeoutError that says `over`."""
    end = None if timeout is None else time.monotonic() + timeout

    def pause(seconds: float) -> None:
        left = seconds if end is None else end - time.monotonic()
        if left <= 0:
            raise TimeoutError(over())
        time.sleep(min(seconds, left))

    return pause
