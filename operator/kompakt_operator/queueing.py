"""A job's Workload at the API server: what core decided about it is done here. Every method raises an ApiError."""

import time
from collections.abc import Mapping
from typing import Any, Final

from kompakt_client.errors import Conflict
from kompakt_core.contract import timestamps
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.workload import WorkloadState
from kompakt_operator import kueue
from kompakt_operator.api import OperatorApi
from kompakt_operator.deletion import delete_owned
from kompakt_operator.kueue import PodSetUpdate, WorkloadPriority
from kompakt_operator.render import owner_of

Object = dict[str, Any]
OWN_CLASS: Final = "kueue.x-k8s.io/workloadpriorityclass"
POD_CLASS: Final = "scheduling.k8s.io/priorityclass"


class WorkloadWriter:
    """Of one job."""

    def __init__(self, api: OperatorApi, job: TrainingJob, labels: Mapping[str, str]) -> None:
        """`labels`: the job's."""
        self._api, self._job, self._labels = api, job, labels
        self._name = kueue.workload_name(owner_of(job))
        self._path = kueue.workloads_path(job.namespace, self._name)

    async def body(self, queue: str, pods: Mapping[str, Object]) -> Object:
        """What the job asks quota for. `pods`: one of each role, as the API server would admit it."""
        return kueue.workload(self._job, queue, pods, await self._priority(pods))

    async def move(self, found: Object, queue: str) -> None:
        """To another queue, where it is in one."""
        if found["spec"].get("queueName") != queue:
            meta = {"resourceVersion": found["metadata"]["resourceVersion"]}
            await self._api.merge(self._path, {"metadata": meta, "spec": {"queueName": queue}})

    async def release(self) -> None:
        """Give the quota of an evicted Workload back."""
        if patch := kueue.without_quota(await self._api.get(self._path), timestamps.encode(time.time())):
            await self._api.merge(f"{self._path}/status", patch)

    async def tell(self, type_: str, reason: str, message: str) -> None:
        """Kueue that this condition holds."""
        told = kueue.condition_of(type_, "True", reason, message, timestamps.encode(time.time()))
        meta = {"name": self._name, "namespace": self._job.namespace}
        body = {"apiVersion": kueue.API_VERSION, "kind": kueue.KIND, "metadata": meta, "status": {"conditions": [told]}}
        await self._api.apply(f"{self._path}/status", body)

    async def delete(self) -> None:
        """The Workload, if it is the job's."""
        await delete_owned(self._api, self._path, owner_of(self._job))

    async def updates(self) -> dict[str, PodSetUpdate]:
        """What the admission adds to the pods of each role. Raises Conflict where it is none any more."""
        found = await self._api.get(self._path)
        if kueue.workload_of(found).state is not WorkloadState.ADMITTED:
            raise Conflict(f"{self._path} is not admitted any more", 409, "Conflict")
        flavors = kueue.flavors_of(found)
        known = {
            name: await self._api.get(kueue.cluster_path("resourceflavors", name)) for name in set().union(*flavors.values())
        }
        return {role: kueue.update_of(role, found, [known[name] for name in names]) for role, names in flavors.items()}

    async def _priority(self, pods: Mapping[str, Object]) -> WorkloadPriority:
        """By the job's label of Kueue's, else that of its pods."""
        if name := self._labels.get(kueue.PRIORITY_LABEL, ""):
            found = await self._api.get(kueue.cluster_path("workloadpriorityclasses", name))
            return WorkloadPriority(int(found.get("value", 0)), name, OWN_CLASS)
        spec = next(iter(pods.values()))["spec"]
        name = spec.get("priorityClassName", "")
        return WorkloadPriority(int(spec.get("priority", 0)), name, POD_CLASS if name else "")
