"""Step 3 of a cycle, order: the gangs that wait, and how many that come after each of them were placed before it."""

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
