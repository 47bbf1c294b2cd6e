"""Step 3 of a cycle, order: the gangs that wait, and how many that come after each of them were placed before it."""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from kompakt_core.placement.fit import selected
from kompakt_core.placement.model import Plan
from kompakt_extender.gangs import order, worker_of
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.waiting_status import passed
from kompakt_extender.views import PodView

PlaceInQueue = tuple[int, str, str]


class PlanningQueue:
    """The gangs that wait. `uids`: theirs, in order."""

    def __init__(self, ledger: GpuLedger, jobs: Jobs) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self.uids: list[str] = []
        self._left: list[str] = []  # whose turn comes in this cycle
        self._places: dict[str, PlaceInQueue] = {}  # of all that have or had a turn in this cycle, gone meanwhile or not
        self._most = 0  # turns that a cycle may have

    def begin(self, waiting: Iterable[str]) -> None:
        """A cycle begins: these wait."""
        self._places = {uid: self.place(uid) for uid in waiting}
        self.uids = sorted(self._places, key=self._places.__getitem__)
        self._left, self._most = list(self.uids), 2 * len(self.uids)

    def next_turn(self) -> str | None:
        """Who is planned next in this cycle; None at its end."""
        return self._left.pop(0) if self._left else None

    def may_come_in(self, uid: str) -> bool:
        """Whether a gang that has come since the cycle began may still have a turn in it.

        As many as were there at first, so that those whose turn is over come again some time.
        """
        return uid not in self._places and bool(self._left) and len(self._places) < self._most

    def let_in(self, uid: str) -> None:
        """It waits now; its turn comes in this cycle if it is before others that are left."""
        place = self.place(uid)
        if place < self._places[self._left[-1]]:
            self._places[uid] = place
            insort(self.uids, uid, key=self._places.__getitem__)
            insort(self._left, uid, key=self._places.__getitem__)

    def passed_by_gang(self, placed: PlanningRequest, plan: Plan) -> None:
        """It was placed, and passes every gang that stands before it in the queue."""
        uid = placed.job.uid
        ahead = self.uids[: self.uids.index(uid)] if uid in self.uids else []
        self.uids = [one for one in self.uids if one != uid]
        labels = [placed.snapshot.nodes[node].labels for node in {seat.node for seat in plan.seats}]
        self._passed(ahead, labels, placed.job.namespace)

    def passed_by_pod(self, pod: PodView) -> None:
        """The same for a plain pod that was bound, as if it had stood in the queue since it was made."""
        node = self._ledger.nodes.get(pod.node) if pod.node else None
        if node is not None and pod.created:
            mine = (-pod.priority, pod.created)
            ahead = [uid for uid in self.uids if uid in self._jobs.views and self.place(uid)[:2] < mine]
            self._passed(ahead, [node.labels], pod.namespace)

    def place(self, uid: str) -> PlaceInQueue:
        """Of a gang that waits, by what it goes before others: see gangs.order."""
        job = self._jobs.views[uid]
        return order(job, self._jobs.members(job), self._jobs.record(job))

    def _passed(self, ahead: Iterable[str], labels: Sequence[Mapping[str, str]], namespace: str) -> None:
        """Count it for these gangs where one of the nodes could serve them.

        Not by their own namespace: who makes a hundred small jobs beside a large one would else have GPUs reserved at will.
        """
        for one in ahead:
            job = self._jobs.views.get(one)
            record = None if job is None else self._jobs.record(job)
            if job is None or record is None or record.attempt != job.attempt or job.namespace == namespace:
                continue
            pod = next((pod for pod in self._jobs.pods_of(one) if pod.gpus), None)
            if pod is not None and any(selected(each, worker_of(pod)) for each in labels):
                self._jobs.change(job, passed)
