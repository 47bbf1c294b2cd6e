"""Step 3 of a cycle, order: the gangs that wait, and how many that come after each of them were placed before it."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kompakt_core.placement.fit import selected
from kompakt_core.placement.model import Plan
from kompakt_extender.gang_state import AttemptResult, CommonAnswer
from kompakt_extender.gangs import order, worker_of
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.unschedulable import PlaceInQueue, UnschedulableGangs
from kompakt_extender.planner.waiting_status import count_is_worth_a_write, passed
from kompakt_extender.views import PodView


class PlanningQueue:
    """The gangs that wait, from cycle to cycle. Those that rest have no turn; `at_most`: how often a gang may be overtaken."""

    def __init__(self, ledger: GpuLedger, jobs: Jobs, at_most: int) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._at_most = at_most
        self._places: dict[str, PlaceInQueue] = {}
        self._order: list[PlaceInQueue] = []
        self._active: set[str] = set()  # who waits and does not rest
        self._resting = UnschedulableGangs(ledger, jobs)
        self._left: list[PlaceInQueue] = []  # a heap: whose turn comes in this cycle
        self._had: set[str] = set()  # who has or had a turn in this cycle
        self._heads: dict[str, CommonAnswer] = {}  # who of them is asked for others too, and what all of those were told last
        self._told: CommonAnswer | None = None  # the same of whose turn it is
        self._most = 0  # turns that a cycle may have

    def __len__(self) -> int:
        return len(self._order)

    def ends(self) -> Iterator[float]:
        """When results change by time alone, in seconds since the epoch."""
        results = (self._jobs.states[uid].result for uid in self._active if uid in self._jobs.states)
        yield from (result.ends for result in results if result is not None and result.ends is not None)
        yield from self._resting.ends()

    def add(self, uid: str) -> None:
        """The gang waits, or something about it has changed: it has a turn."""
        self.remove(uid)
        job = self._jobs.views[uid]
        self._places[uid] = place = order(job, self._jobs.members(job), self._jobs.record(job))
        insort(self._order, place)
        self._active.add(uid)

    def remove(self, uid: str) -> None:
        """The gang waits no more."""
        if uid in self._places:
            self._wake(uid)
            place = self._places.pop(uid)
            del self._order[bisect_left(self._order, place)]
            self._active.discard(uid)

    def wake(self, which: Callable[[str], bool]) -> None:
        """These gangs have a turn, whatever they were told."""
        for uid in [uid for uid in self._places if uid in self._resting and which(uid)]:
            self._wake(uid)

    def _wake(self, uid: str) -> None:
        """It rests no more; its result goes for what others with the same answer saw since."""
        if uid in self._resting:
            saw = self._resting.remove(self._places[uid])
            self._active.add(uid)
            gang = self._jobs.states.get(uid)
            if gang is not None and gang.result is not None:
                gang.result = gang.result._replace(mark=gang.result.mark.after(saw))

    def begin(self, now: float) -> None:
        """A cycle begins; `now`: seconds since the epoch."""
        self._left, self._heads, self._most = [], {}, 2 * len(self._order)
        self._had = set(self._active)
        self._left = [self._places[uid] for uid in self._active]
        heapq.heapify(self._left)
        for answer in self._resting.open_answers(now):
            self._ask_first(answer)

    def _ask_first(self, answer: CommonAnswer) -> None:
        """The turn of the first that was told so comes in this cycle."""
        place = self._resting.first(answer)
        if place is not None:
            heapq.heappush(self._left, place)
            self._heads[place[-1]] = answer
            self._had.add(place[-1])

    def next_turn(self) -> str | None:
        """Who is planned next in this cycle; None at its end."""
        while self._left:
            place = heapq.heappop(self._left)
            self._told = self._heads.pop(uid := place[-1], None)
            if self._places.get(uid) == place:
                self._wake(uid)
                return uid
            if self._told is not None:
                self._ask_first(self._told)  # this one waits no more
        return None

    def end_turn(self, uid: str, result: AttemptResult | None) -> None:
        """It was planned. `result`: it rests with this answer; None: it has a turn in the next cycle.

        If it was told something else than those for which it was asked, the next of them is asked.
        """
        told, self._told = self._told, None
        same = result is not None and result.answer == told
        if result is not None and uid in self._places:
            self._active.discard(uid)
            self._resting.add(self._places[uid], result, asked=same)
        if told is not None and not same:
            self._ask_first(told)

    def may_come_in(self, uid: str) -> bool:
        """Whether a gang that has come since the cycle began may still have a turn in it.

        As many as were there at first, so that those whose turn is over come again some time.
        """
        return uid not in self._had and bool(self._left) and len(self._had) < self._most

    def let_in(self, uid: str) -> None:
        """It waits now; its turn comes in this cycle if it is before others that are left."""
        self.add(uid)
        if self._places[uid] < max(self._left):
            heapq.heappush(self._left, self._places[uid])
            self._had.add(uid)

    def passed_by_gang(self, placed: PlanningRequest, plan: Plan) -> None:
        """It was placed, and passes every gang that stands before it in the queue."""
        uid = placed.job.uid
        ahead = self._ahead_of(self._places[uid]) if uid in self._places else []
        self.remove(uid)
        labels = [placed.snapshot.nodes[node].labels for node in {seat.node for seat in plan.seats}]
        self._passed(ahead, labels, placed.job.namespace)

    def passed_by_pod(self, pod: PodView) -> None:
        """The same for a plain pod that was bound, as if it had stood in the queue since it was made."""
        node = self._ledger.nodes.get(pod.node) if pod.node else None
        if node is not None and pod.created:
            self._passed(self._ahead_of((-pod.priority, pod.created)), [node.labels], pod.namespace)

    def _ahead_of(self, place: tuple[int, str] | PlaceInQueue) -> list[str]:
        return [one[-1] for one in self._order[: bisect_left(self._order, place)]]

    def _passed(self, ahead: Iterable[str], labels: Sequence[Mapping[str, str]], namespace: str) -> None:
        """Count it for these gangs where one of the nodes could serve them.

        Not by their own namespace: who makes a hundred small jobs beside a large one would else have GPUs reserved at will.
        """
        for one in ahead:
            job = self._jobs.views.get(one)
            record = None if job is None else self._jobs.record(job)
            if job is None or record is None or record.attempt != job.attempt or job.namespace == namespace:
                continue
            pod = next((pod for pod in self._jobs.members(job) if pod.gpus), None)
            if pod is not None and any(selected(each, worker_of(pod)) for each in labels):
                after = passed(record)
                enough = after.overtaken == self._at_most or count_is_worth_a_write(after, self._jobs.written(job))
                self._jobs.change(job, passed, due=enough)
