"""Which running gangs end for a waiting one of higher priority.

Rules: only gangs of lower priority, never one before its minimum run time is over, always whole gangs, and only if the
waiting one then has a place that its delay policy accepts. Of all ways the one whose most important victim matters least,
then the fewest victims, the narrowest level, the fewest GPUs, the youngest. Equal priorities never preempt, so no two gangs
take turns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, islice

from kompakt_core.ids import GpuMask, JobUid, NodeName
from kompakt_core.placement.gang_placement import LEVEL_LABELS, plan_gang
from kompakt_core.placement.model import Gang, Level, NodeState, Plan, Snapshot
from kompakt_core.placement.seating import WIDENING, SeatSearch
from kompakt_core.policy.place_or_wait import gang_gpus, unhealthy_gpus

TOGETHER_AT_MOST = 2  # so many victims are found with certainty where so few are enough; for more, each is needed
TRIES = 256  # sets of victims tried for one place
PLACES_AT_MOST = 32  # looked at closely, those that cost least by a count of GPUs
WHOLE_DOMAIN_AT_MOST = 64  # nodes; of a larger one only those where the gang would sit if all victims ended


@dataclass(frozen=True, slots=True)
class PodHolding:
    """What one pod of a running gang gives back. `cpu_millis`, `memory_bytes`: its requests."""

    node: NodeName
    gpus: GpuMask
    cpu_millis: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A gang that could end. `since`: when all its workers ran, or were placed if they never did; `protected_until`: when its
    minimum run time is over (both in seconds on the clock of `now`).
    """

    job_uid: JobUid
    attempt: int
    priority: int
    since: float
    protected_until: float
    pods: tuple[PodHolding, ...]


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """These gangs end, and then the waiting one sits as planned. No victim could be spared."""

    victims: tuple[RunningGang, ...]
    plan: Plan


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Ending gangs would help, but enough of them may end only from this moment on."""

    at: float


Accepts = Callable[[Level], bool]


def preempt(
    snapshot: Snapshot,
    gang: Gang,
    priority: int,
    running: Sequence[RunningGang],
    accepts: Accepts,
    now: float,
    labels: Mapping[Level, str] = LEVEL_LABELS,
) -> PreemptionPlan | NotBefore | None:
    """Whom to end for a gang that has no place now; None where ending all it may end would not help.

    `accepts`: whether the gang's delay policy would take a place at that level now; who takes a level takes any narrower one.
    """
    search = _VictimSearch(snapshot, gang, accepts, labels)
    lower = sorted((one for one in running if one.priority < priority), key=_first_to_end)
    if not lower or search.plan(lower) is None:
        return None
    ready = [one for one in lower if one.protected_until <= now]
    return search.fewest(ready) or _not_before(search, lower, now)


def freed(snapshot: Snapshot, victims: Sequence[RunningGang]) -> Snapshot:
    """The cluster without these gangs. Unhealthy GPUs stay taken."""
    nodes = dict(snapshot.nodes)
    for victim in victims:
        for pod in victim.pods:
            if pod.node in nodes:
                nodes[pod.node] = _without(nodes[pod.node], pod)
    return Snapshot(nodes)


def _without(state: NodeState, pod: PodHolding) -> NodeState:
    return replace(
        state,
        taken=GpuMask(state.taken & ~pod.gpus | unhealthy_gpus(state)),
        free_cpu_millis=state.free_cpu_millis + pod.cpu_millis,
        free_memory_bytes=state.free_memory_bytes + pod.memory_bytes,
        free_pods=state.free_pods + 1,
    )


def _first_to_end(one: RunningGang) -> tuple[int, float, str]:
    return one.priority, -one.since, one.job_uid


def _not_before(search: "_VictimSearch", lower: Sequence[RunningGang], now: float) -> NotBefore | None:
    """The first moment at which those who may end by then would be enough."""
    times = sorted({one.protected_until for one in lower if one.protected_until > now})
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        if search.plan([one for one in lower if one.protected_until <= times[middle]]) is None:
            low = middle + 1
        else:
            high = middle
    return NotBefore(times[low]) if times else None


@dataclass(frozen=True, slots=True)
class _Place:
    """Nodes that would hold the gang if all of `here` ended. By a count of GPUs alone somebody of priority `least` must, and at
    least `few` in all.
    """

    level: Level
    names: frozenset[NodeName]
    here: tuple[RunningGang, ...]
    least: int
    few: int
    whole: bool  # whether these are all nodes of their rack, block or cluster

    @property
    def bound(self) -> tuple[int, int, int]:
        """Nothing here costs less; compares with the beginning of _cost."""
        return self.least, self.few, WIDENING.index(self.level)


@dataclass(frozen=True, slots=True)
class _VictimSearch:
    """One gang's look for victims."""

    snapshot: Snapshot
    gang: Gang
    accepts: Accepts
    labels: Mapping[Level, str]

    def plan(self, victims: Sequence[RunningGang]) -> Plan | None:
        """Where the gang goes without these, if it accepts that."""
        found = plan_gang(freed(self.snapshot, victims), self.gang, self.labels)
        return found if isinstance(found, Plan) and self.accepts(found.level) else None

    def fewest(self, ready: Sequence[RunningGang]) -> PreemptionPlan | None:
        """The best way to end some of these; `ready` stands in the order in which they end."""
        best: tuple[tuple[object, ...], _Place, list[RunningGang]] | None = None
        places = sorted(self._places(ready), key=lambda place: (place.bound, sorted(place.names)))
        for place in places[:PLACES_AT_MOST]:
            if best is not None and place.bound > best[0][: len(place.bound)]:
                break
            victims = self._in(place)
            if victims and (best is None or _cost(victims, place.level) < best[0]):
                best = _cost(victims, place.level), place, victims
        return None if best is None else self._checked(*best[1:])

    def _checked(self, place: _Place, victims: list[RunningGang]) -> PreemptionPlan | None:
        """What ends elsewhere as well, and nodes that were not looked at, may spare a victim."""
        if not place.whole or any(pod.node not in place.names for one in victims for pod in one.pods):
            victims = self._needed(victims, self.plan)
        plan = self.plan(victims)
        return PreemptionPlan(tuple(victims), plan) if plan is not None and victims else None

    def _places(self, ready: Sequence[RunningGang]) -> Iterator[_Place]:
        search = SeatSearch(freed(self.snapshot, ready), self.gang, self.labels)
        on: dict[NodeName, list[int]] = {}
        for number, one in enumerate(ready):
            for node in {pod.node for pod in one.pods}:
                on.setdefault(node, []).append(number)
        for level in WIDENING[: WIDENING.index(self.gang.required_level) + 1]:
            for names in search.domains(level) if self.accepts(level) else ():
                seating = search.seat_on(names)
                if seating is not None:
                    whole = len(names) <= WHOLE_DOMAIN_AT_MOST
                    inside = frozenset(names if whole else (node for _, node, _ in seating))
                    here = sorted({number for node in inside for number in on.get(node, ())})
                    yield self._place(level, inside, tuple(ready[number] for number in here), whole)

    def _place(self, level: Level, names: frozenset[NodeName], here: tuple[RunningGang, ...], whole: bool) -> _Place:
        """`here` stands in the order in which they end: by priority first."""
        lacking = gang_gpus(self.gang) - sum(self.snapshot.nodes[name].free.bit_count() for name in names)
        given = [sum(pod.gpus.bit_count() for pod in one.pods if pod.node in names) for one in here]
        needed = next((number for number, sum_ in enumerate(accumulate(given)) if sum_ >= lacking), len(here) - 1)
        least = here[needed].priority if here else 0
        most = sorted((gpus for gpus, one in zip(given, here, strict=True) if one.priority <= least), reverse=True)
        few = next((number for number, sum_ in enumerate(accumulate(most), 1) if sum_ >= lacking), 1)
        return _Place(level, names, here, least, few, whole)

    def _in(self, place: _Place) -> list[RunningGang]:
        """Whom to end so that the gang has room on these nodes."""
        nodes = Snapshot({name: self.snapshot.nodes[name] for name in sorted(place.names)})

        def fits(victims: Sequence[RunningGang]) -> bool:
            return SeatSearch(freed(nodes, victims), self.gang, self.labels).seat(place.level) is not None

        for least in sorted({one.priority for one in place.here if one.priority >= place.least}):
            here = [one for one in place.here if one.priority <= least]
            if fits(here):
                break
        else:
            return []
        start = place.few if least == place.least else 1
        few = (list(each) for count in range(start, TOGETHER_AT_MOST + 1) for each in combinations(here, count))
        found = next((each for each in islice(few, TRIES) if fits(each)), None)
        return self._needed(here, fits) if found is None else found

    @staticmethod
    def _needed(victims: Sequence[RunningGang], fits: Callable[[Sequence[RunningGang]], object]) -> list[RunningGang]:
        """The same without those that can be spared, the most important and oldest first."""
        left = list(victims)
        for one in reversed(victims):
            without = [other for other in left if other is not one]
            if fits(without):
                left = without
        return left


def _cost(victims: Sequence[RunningGang], level: Level) -> tuple[object, ...]:
    gpus = sum(pod.gpus.bit_count() for one in victims for pod in one.pods)
    since = tuple(sorted(-one.since for one in victims))
    most = max(one.priority for one in victims)
    return most, len(victims), WIDENING.index(level), gpus, since, tuple(one.job_uid for one in victims)
