"""What jobs leave behind that are no more.

Kubernetes' garbage collector removes it. But when the CRD of TrainingJob goes, and all jobs with it, the collector may
hear of the jobs' end too late: it then knows no such kind any more, cannot ask whether the owner is there, and leaves
everything as it is. So what still stands a while after its job has gone is removed here.
"""

import asyncio
from typing import Any, Final

from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.job_owner import JobOwner
from kompakt_operator.api import OperatorApi, budgets_path, core_path
from kompakt_operator.deletion import delete_owned
from kompakt_operator.observed import Observed
from kompakt_operator.workqueue import Key, WorkQueue

COLLECTOR_SECONDS: Final = 10.0  # the collector needs about one
Object = dict[str, Any]


class GarbageCollector:
    """Knows since when jobs are missing of which something is there."""

    def __init__(self, api: OperatorApi, observed: Observed, queue: WorkQueue) -> None:
        self._api, self._observed, self._queue = api, observed, queue
        self._since: dict[JobOwner, float] = {}

    async def reconcile(self, key: Key, living: str) -> None:
        """Remove what is left of jobs of that name but the one with the uid `living` ("": none), once the collector had its time.

        Raises an ApiError.
        """
        now = asyncio.get_running_loop().time()
        missing = [job for job in self._observed.jobs_named(key) if job.uid != living]
        for job in missing:
            end = self._since.setdefault(job, now) + COLLECTOR_SECONDS
            if now < end:
                self._queue.add_after(key, end - now)
            else:
                await self._remove(job)
                del self._since[job]  # what happens later counts anew
        self._since = {job: since for job, since in self._since.items() if self._observed.knows(job)}

    async def _remove(self, job: JobOwner) -> None:
        for kind in ("pods", "services"):
            path = core_path(kind, job.namespace)
            async for obj in self._api.listed(path, labelSelector=worker_labels.job_selector(job.uid)):
                if left_behind(obj, job):
                    await self._delete(kind, job, obj["metadata"])

    async def _delete(self, kind: str, job: JobOwner, meta: Object) -> None:
        path = core_path(kind, job.namespace, meta["name"])
        await delete_owned(self._api, path, job, meta["uid"], meta["resourceVersion"])
        if kind == "services":  # a budget, where there is one, has the name of the attempt's Service
            await delete_owned(self._api, budgets_path(job.namespace, meta["name"]), job)


def left_behind(obj: Object, job: JobOwner) -> bool:
    """Whether an object belongs to that job and is not going already.

    `kubectl delete --cascade=orphan` takes the owner off: what it leaves is to stay.
    """
    return job_owner.readable(obj["metadata"]) == job and not obj["metadata"].get("deletionTimestamp")
