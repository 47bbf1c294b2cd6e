"""Gangs that were told that they have no place, by what they want: thousands wait, of a few dozen kinds.

They rest until the answer could be another one, and then the first of each kind is asked. What it is told goes for those behind
it: in a cycle nobody sees more than those before it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from kompakt_extender.cluster_view import may_hold
from kompakt_extender.gang_state import AttemptResult, CommonAnswer, Depends, GangKind, SeenVersions
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger

PlaceInQueue = tuple[int, str, str]  # see gangs.order; the last is the job's uid


@dataclass(slots=True)
class _Told:
    """Gangs with one answer. `mark`: what the one that was asked last saw, of what goes for all."""

    mark: SeenVersions
    places: list[PlaceInQueue] = field(default_factory=list)


class UnschedulableGangs:
    """Who rests. Keeps nothing of a gang but its place in the queue."""

    def __init__(self, ledger: GpuLedger, jobs: Jobs) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._told: dict[CommonAnswer, _Told] = {}
        self._answers: dict[str, CommonAnswer] = {}  # by uid

    def __contains__(self, uid: str) -> bool:
        return uid in self._answers

    def add(self, place: PlaceInQueue, result: AttemptResult, *, asked: bool) -> None:
        """The gang rests. `asked`: it was taken from those with the same answer to be asked for them."""
        assert result.answer is not None
        told = self._told.setdefault(result.answer, _Told(result.mark))
        if asked:
            told.mark = result.mark
        insort(told.places, place)
        self._answers[place[-1]] = result.answer

    def remove(self, place: PlaceInQueue) -> SeenVersions:
        """The gang rests no more; of what goes for all, this is what it was last told about."""
        answer = self._answers.pop(place[-1])
        told = self._told[answer]
        del told.places[bisect_left(told.places, place)]
        if not told.places:
            del self._told[answer]
        return told.mark

    def first(self, answer: CommonAnswer) -> PlaceInQueue | None:
        """The place of the first that was told so."""
        told = self._told.get(answer)
        return None if told is None else told.places[0]

    def ends(self) -> Iterator[float]:
        """When answers change by time alone, in seconds since the epoch."""
        return (answer.ends for answer in self._told if answer.ends is not None)

    def open_answers(self, now: float) -> list[CommonAnswer]:
        """Those that could be other ones now (seconds since the epoch)."""
        return [answer for answer, told in self._told.items() if self._is_open(answer, told.mark, now)]

    def _is_open(self, answer: CommonAnswer, mark: SeenVersions, now: float) -> bool:
        if mark.machines != self._ledger.machines_version or (answer.ends is not None and answer.ends <= now):
            return True
        match answer.depends:
            case Depends.MACHINES:
                return False
            case Depends.ROOM:
                return mark.freed != self._ledger.freed_version and self._may_fit(answer.kind)
            case Depends.ALL:
                return (mark.ledger, mark.preemption) != (self._ledger.version, self._jobs.preemption_version)

    def _may_fit(self, kind: GangKind) -> bool:
        ends_others = kind.priority is not None and self._ledger.any_below(kind.priority)
        return ends_others or may_hold(self._ledger.cluster_view().free, kind.sizes)
