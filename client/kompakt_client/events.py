"""Events for people, of core v1, in series: the same again is one Event with a count. Pure: no I/O, and `now` comes in.

The window and the shape of a series are those of client-go's package tools/events (event_broadcaster.go: `finishTime` is six
minutes, and its `eventKey` says which Events are the same). There a count waits in memory for up to half an hour
(`refreshTime`); here it is written at most every ten seconds, so that `kubectl describe` is never far behind, whatever repeats
how fast. Unlike there the note belongs to the key: ours carry facts, and one with other facts must not vanish in a count.

What an Event must carry is in pkg/apis/core/validation/events.go of Kubernetes: with an eventTime also an action and who reports
it, at most 1024 bytes of a message, 128 of an instance; a series counts at least two.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from typing import Final

from kompakt_client.errors import ApiError, Conflict, NotFound
from kompakt_client.requests import Object
from kompakt_core.contract import timestamps
from kompakt_core.errors import TryLater

WINDOW_SECONDS: Final = 360.0  # after so long without another one the series is over, and the next one is a new Event
WRITE_SECONDS: Final = 10.0  # between two writes of one Event
MAX_SERIES: Final = 1024
NOTE_BYTES: Final = 1024
INSTANCE_BYTES: Final = 128
NAME_LENGTH: Final = 253
OF_NO_NAMESPACE: Final = "default"  # where Events about Nodes stand, as kubelet's do


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about; `namespace` is empty where its kind has none."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What happened, and to what. Equal ones are the same Event. `type` is Normal or Warning; `note` is what people read."""

    regarding: Regarding
    type: str
    reason: str
    action: str
    note: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "note", _cut(self.note, NOTE_BYTES))

    @property
    def path(self) -> str:
        """Where its Events stand."""
        return f"/api/v1/namespaces/{self.regarding.namespace or OF_NO_NAMESPACE}/events"


@dataclass(frozen=True, slots=True)
class EventSeries:
    """One Event object: how often it was told, and what of that the API server has."""

    name: str
    first: float
    last: float
    count: int = 1
    written: int = 0  # the count of the object that stands there; 0: there is none
    tried_at: float = 0.0  # the last write, whether it went well or not
    sending: bool = False  # by whoever has taken the write, so that nobody takes it twice

    def over(self, now: float) -> bool:
        """Whether the next one is a new Event; what is not written yet goes on, however late."""
        return self.written == self.count and now - self.last > WINDOW_SECONDS

    def due(self, now: float) -> bool:
        """Whether there is something to write now; a clock that was put back holds nothing up."""
        rested = not self.written or not 0 <= now - self.tried_at < WRITE_SECONDS
        return self.written < self.count and rested and not self.sending


@dataclass(frozen=True, slots=True)
class EventWrite:
    """One request: POST of a new Event (`creates`), or a merge patch of one that stands there."""

    said: Occurrence
    name: str
    count: int
    creates: bool
    path: str
    body: Object


class EventOutcome(Enum):
    """What the answer to a write means."""

    SETTLED = "settled"  # it stands there, or is made anew: take the next one
    LATER = "made later"  # leave the API server alone for now
    REFUSED = "not made"  # for good; told again it is a new Event


class EventCorrelator:
    """What one process tells, as the fewest writes. Not safe for threads: its user holds a lock."""

    def __init__(self, controller: str, instance: str, most: int = MAX_SERIES) -> None:
        """`controller` and `instance` say who reports; of more than `most` Events the one told longest ago is forgotten."""
        self._controller, self._instance, self._most = controller, _cut(instance, INSTANCE_BYTES), most
        self._series: dict[Occurrence, EventSeries] = {}  # the one told longest ago first

    def __len__(self) -> int:
        return len(self._series)

    def tell(self, said: Occurrence, now: float) -> None:
        """It happened, perhaps again; `now` in seconds since 1970."""
        series = self._series.pop(said, None)
        goes_on = series is not None and not series.over(now)
        self._series[said] = replace(series, last=now, count=series.count + 1) if series and goes_on else self._first(said, now)
        for old in list(self._forgettable(now)):
            del self._series[old]

    def take(self, now: float) -> EventWrite | None:
        """What is to be written next, if anything; whoever takes it calls `answered`."""
        for said, series in self._series.items():
            if series.due(now):
                self._series[said] = replace(series, sending=True)
                return self._write(said, series)
        return None

    def answered(self, write: EventWrite, error: ApiError | None, now: float) -> EventOutcome:
        """How it ended, and what that means."""
        if error is None:
            self._stands(write, write.count, now)
        elif isinstance(error, Conflict) and error.exists and write.creates:  # an answer was lost: it is there, as first told
            self._stands(write, 1, now)
        elif isinstance(error, NotFound) and not write.creates:  # Events are kept for an hour, and may be deleted: make it anew
            self._stands(write, 0, now)
        elif isinstance(error, TryLater | Conflict):
            self._stands(write, None, now)
            return EventOutcome.LATER
        else:
            self._forget(write)
            return EventOutcome.REFUSED
        return EventOutcome.SETTLED

    def _first(self, said: Occurrence, now: float) -> EventSeries:
        """A name of our own, not a generated one: should an answer be lost, a repeated POST makes no second Event."""
        digest = sha256(repr((self._controller, self._instance, said, now)).encode(errors="replace")).hexdigest()[:16]
        about = said.regarding.name[: NAME_LENGTH - 1 - len(digest)].rstrip(".-")
        return EventSeries(f"{about}.{digest}", now, now)

    def _forgettable(self, now: float) -> Iterator[Occurrence]:
        surplus = len(self._series) - self._most
        for number, (said, series) in enumerate(self._series.items()):
            if number >= surplus and not series.over(now):
                return
            yield said

    def _mine(self, write: EventWrite) -> bool:
        """Whether the series that it came from is still known."""
        series = self._series.get(write.said)
        return series is not None and series.name == write.name

    def _forget(self, write: EventWrite) -> None:
        if self._mine(write):
            del self._series[write.said]

    def _stands(self, write: EventWrite, count: int | None, now: float) -> None:
        """The API server's object has that count by now; None: what it had before."""
        if self._mine(write):
            series = self._series[write.said]
            written = series.written if count is None else count
            self._series[write.said] = replace(series, written=written, tried_at=now, sending=False)

    def _write(self, said: Occurrence, series: EventSeries) -> EventWrite:
        if series.written:
            body, path = _counted(series), f"{said.path}/{series.name}"
        else:
            body, path = self._body(said, series) | _counted(series), said.path
        return EventWrite(said, series.name, series.count, not series.written, path, body)

    def _body(self, said: Occurrence, series: EventSeries) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": said.regarding.namespace or OF_NO_NAMESPACE},
            "involvedObject": _reference(said.regarding),
            "type": said.type,
            "reason": said.reason,
            "action": said.action,
            "message": said.note,
            "source": {"component": self._controller},
            "reportingComponent": self._controller,
            "reportingInstance": self._instance,
            "eventTime": timestamps.encode_micro(series.first),
            "firstTimestamp": timestamps.encode(series.first),
        }


def _counted(series: EventSeries) -> Object:
    """The fields that change: those of a series, and those that readers of the older form look at."""
    older: Object = {"count": series.count, "lastTimestamp": timestamps.encode(series.last)}
    observed = {"count": series.count, "lastObservedTime": timestamps.encode_micro(series.last)}
    return older | ({"series": observed} if series.count > 1 else {})


def _reference(about: Regarding) -> Object:
    named = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    return named | ({"namespace": about.namespace} if about.namespace else {})


def _cut(text: str, size: int) -> str:
    """At most so many bytes, and no part of a character."""
    return text.encode(errors="replace")[:size].decode(errors="ignore")
