"""What the workers of a job print, as lines that know their worker and moment: to be merged, and to go on after a break."""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kompakt.training_jobs import Document, TrainingJobs
from kompakt_core import contract
from kompakt_core.contract import timestamps, worker_labels
from kompakt_core.contract.job_owner import JobOwner

Moment = tuple[int, str]  # seconds since 1970, and nine digits of the second: a float would lose the last three
_FRACTION: Final = re.compile(r"\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a worker. `stamp` is the moment as its node wrote it, `rank` the worker's number over all roles."""

    worker: str
    stamp: str
    text: str
    rank: int = 0

    def __str__(self) -> str:
        """As `kompakt logs` shows it."""
        return f"[{self.worker}] {self.text}"

    @property
    def moment(self) -> Moment:
        """By which lines of several workers are merged; 1970 where the node wrote none."""
        second = timestamps.seconds(self.stamp)
        digits = _FRACTION.search(self.stamp)
        return (int(second // 1) if second is not None else 0, (digits[1] if digits else "").ljust(9, "0"))


@dataclass(slots=True)
class Position:
    """How far a log has been read, so that reading it anew from the last line's second gives nothing twice."""

    last: Moment | None = None
    seen: int = 0  # lines of that moment
    _repeated: int | None = field(default=None, init=False)  # of these, come once more; None: what comes is new

    @property
    def since(self) -> str | None:
        """From where to read; None: from the beginning."""
        return None if self.last is None else timestamps.encode(float(self.last[0]))

    def reopened(self) -> None:
        """Reading begins anew at `since`: what was seen comes once more."""
        self._repeated = None if self.last is None else 0

    def passes(self, line: Line) -> bool:
        """Whether the line is new; it counts as read then. A clock that was set back makes no line old."""
        moment = line.moment
        if self._repeated is not None and self.last is not None and moment <= self.last:
            self._repeated += moment == self.last
            if self._repeated <= self.seen:
                return False
        self._repeated = None
        self.seen = self.seen + 1 if moment == self.last else 1
        self.last = moment
        return True


@dataclass(frozen=True, slots=True)
class LoggedWorker:
    """A pod of the job whose container has begun to run."""

    name: str  # role and number, as in worker-0
    index: int  # over all roles
    pod: str
    uid: str
    container: str
    ended: bool


def line_of(worker: LoggedWorker, data: bytes) -> Line:
    """A line of a log that was asked for with timestamps."""
    stamp, _, text = data.decode(errors="replace").partition(" ")
    return Line(worker.name, stamp, text, worker.index)


def workers_of(pods: Iterable[Document], owner: JobOwner, attempt: int, container: str) -> list[LoggedWorker]:
    """The attempt's workers that have begun, in order of their ranks. `container` "": the one with the GPUs, or the first."""
    found = [_worker(pod, owner, container) for pod in pods if worker_labels.attempt(_labels(pod)) == attempt]
    return sorted((one for one in found if one is not None), key=lambda one: one.index)


def _labels(pod: Document) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _worker(pod: Document, owner: JobOwner, container: str) -> LoggedWorker | None:
    meta, index = pod["metadata"], worker_labels.worker_index(_labels(pod))
    wanted = container or _trainer(pod)
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state = next((one.get("state") or {} for one in statuses if one.get("name") == wanted), {})
    if index is None or not ({"running", "terminated"} & state.keys()):
        return None
    name = str(meta["name"]).removeprefix(f"{owner.name}-").rpartition("-a")[0]
    return LoggedWorker(name, index, meta["name"], meta["uid"], wanted, "terminated" in state)


def _trainer(pod: Document) -> str:
    containers = pod["spec"]["containers"]
    with_gpus = (one for one in containers if set(contract.RESOURCES) & ((one.get("resources") or {}).get("limits") or {}).keys())
    return str(next(with_gpus, containers[0])["name"])


def printed(jobs: TrainingJobs, workers: Iterable[LoggedWorker], tail: int | None) -> Iterator[Line]:
    """What these have printed until now, merged by time; lines of one moment by rank. Raises an ApiError."""
    return heapq.merge(*(list_of(jobs, one, tail) for one in workers), key=lambda line: line.moment)


def list_of(jobs: TrainingJobs, worker: LoggedWorker, tail: int | None) -> Iterator[Line]:
    """The same of one worker, as it stands in its log."""
    query: dict[str, str | int] = {"container": worker.container, "timestamps": "true"}
    if tail is not None:
        query["tailLines"] = tail
    for batch in jobs.log(worker.pod, query).batches(unfinished=True):
        yield from (line_of(worker, data) for data in batch)


def follow(jobs: TrainingJobs, worker: LoggedWorker, position: Position, tail: int | None, put: Callable[[Line], None]) -> None:
    """Hand over what a worker prints from `position` on, until its log ends. Raises an ApiError where the connection breaks."""
    query: dict[str, str | int] = {"container": worker.container, "timestamps": "true", "follow": "true"}
    if position.since is not None:
        query["sinceTime"] = position.since
    elif tail is not None:
        query["tailLines"] = tail
    position.reopened()
    for batch in jobs.log(worker.pod, query).batches(unfinished=True):
        for line in (line_of(worker, data) for data in batch):
            if position.passes(line):
                put(line)
