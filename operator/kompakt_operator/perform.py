"""Performs actions, one after the other; pods of a gang side by side. What is found already done counts as done."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kompakt_client.errors import NotFound, Rejected
from kompakt_core import contract
from kompakt_core.contract import expected_pods, job_owner, timestamps
from kompakt_core.contract.expected_pods import ExpectedPods
from kompakt_core.errors import Bug
from kompakt_core.job import to_do as do
from kompakt_core.job import workload
from kompakt_core.job.batches import read_batch
from kompakt_core.job.gradients import read_gradients
from kompakt_core.job.model import Evictions, Role, TrainingJob
from kompakt_core.job.provisioning import DeleteNodeRequest, NodeRequest, Provisioning, RequestNodes, consumed
from kompakt_core.job.runtime_image import read_image
from kompakt_core.job.status import read_status
from kompakt_operator import kueue, pods_first, provisioning, quota, render
from kompakt_operator.api import AT_ONCE, OperatorApi, budgets_path, core_path, jobs_path
from kompakt_operator.deletion import delete_owned
from kompakt_operator.kueue import PodSetUpdate
from kompakt_operator.pull_secrets import References, secrets_of
from kompakt_operator.queueing import WorkloadWriter

Object = dict[str, Any]
log = logging.getLogger(__name__)
OTHER_GPUS: Final = "the API server would give the pods another number of GPUs than the job asks for: which webhook changes them?"
FIRST_BATCH: Final = 4  # pods made side by side; then twice as many, and so on: what refuses one refuses few more in vain


class NotMade(Rejected):
    """The API server refuses to make an object of the gang: `kind` and `name` say which."""

    def __init__(self, status: int, reason: str, message: str, kind: str = "Pod", name: str = "") -> None:
        super().__init__(message, status, reason)
        self.kind, self.name = kind, name


class NameTaken(Exception):
    """An object of the name we need, of this kind, belongs to somebody else. It is never adopted."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name} exists and does not belong to this TrainingJob: delete it, or rename the job")
        self.kind = kind


async def write_status(api: OperatorApi, obj: Object, status: Mapping[str, Any]) -> Object:
    """Apply all status fields that are ours, with the resourceVersion that the decision was made on. Returns the new object."""
    meta = obj["metadata"]
    body = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.JOB_KIND,
        "metadata": {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "status": status,
    }
    return await api.apply(jobs_path(meta["namespace"], meta["name"]) + "/status", body)


class Performer:
    """Performs one job's actions against the API server."""

    def __init__(
        self,
        api: OperatorApi,
        image: str,
        obj: Object,
        job: TrainingJob,
        keeps_node: bool = True,
        pull_secrets: Sequence[str] = (),
        resource: str = contract.RESOURCE,
        queued: bool = False,
        claims_scheduler: str = "",
        nodes: Provisioning | None = None,
    ) -> None:
        """`resource`: by which name workers ask for GPUs. `queued`: whether the job's pods need an admission by Kueue.
        `claims_scheduler`: as for render.pod. `nodes`: None where no autoscaler is asked for them.
        """
        self._nodes = nodes
        self._resource, self._queued, self._claims_scheduler = resource, queued, claims_scheduler
        self._updates: dict[str, PodSetUpdate] = {}  # by role
        self._api, self._image, self._job, self._keeps_node = api, image, job, keeps_node
        self._pull_secrets, self._secrets_of = pull_secrets, dict[str, References]()  # by role
        self._labels = (obj["metadata"].get("labels") or {}) if isinstance(obj.get("metadata"), dict) else {}
        self._owner, self._workload = render.owner_of(job), WorkloadWriter(api, job, self._labels)
        self._protected = job.run_policy.evictions is Evictions.REFUSE
        self._room = asyncio.Semaphore(AT_ONCE)
        self.current = obj  # the job object as last returned by the API server

    async def perform(self, wanted: Sequence[do.Action]) -> None:
        """Raises NotMade, NameTaken or another ApiError at the first action that cannot be performed."""
        await self._read_secrets(wanted)
        if self._queued and any(isinstance(action, do.CreatePod | do.TryPod | do.AskForPlaces) for action in wanted):
            self._updates = await self._workload.updates()
        pods = [action for action in wanted if isinstance(action, do.CreatePod)]
        for action in wanted:
            if not isinstance(action, do.CreatePod):
                await self._one(action)
        if len(pods) > 1:
            await self._check_quota([pod.role for pod in pods])
        made, size = 0, FIRST_BATCH
        while made < len(pods):
            await self._create_pods(pods[made : made + size])
            made, size = made + size, size * 2

    async def _read_secrets(self, wanted: Sequence[do.Action]) -> None:
        """Which Secrets new pods name, once for each role."""
        named = {action.role for action in wanted if isinstance(action, do.CreatePod | do.TryPod)}
        all_roles = any(isinstance(action, do.AskForPlaces) for action in wanted)
        for role in self._job.roles:
            if (all_roles or role.name in named) and self._pull_secrets and render.has_runtime(self._job, role):
                found = await secrets_of(self._api, self._job.namespace, role, self._pull_secrets)
                self._secrets_of[role.name] = found

    async def _check_quota(self, roles: Sequence[str]) -> None:
        """Raises NotMade where a quota has no room for pods of these roles; where quotas may not be read, the API server will
        say so.

        As the API server's cache has them: for the latest ones it would first wait for its cache, 60 ms after any write.
        """
        path = core_path("resourcequotas", self._job.namespace)
        try:
            quotas = (await self._api.get(path, resourceVersion="0")).get("items") or ()
        except Rejected:
            return
        words = quota.exceeded(quotas, quota.needed((self._role(role).gpus_per_replica for role in roles), self._resource))
        if words:
            raise NotMade(403, "Forbidden", words)

    async def _create_pods(self, pods: Sequence[do.CreatePod]) -> None:
        for result in await asyncio.gather(*map(self._create_pod, pods), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _one(self, action: do.Action) -> None:
        match action:
            case do.WriteStatus(status):
                self.current = await write_status(self._api, self.current, status)
            case do.TryPod(role, attempt):
                await self._tried(self._role(role), attempt)
            case do.AskForPlaces(attempt):
                expected = expected_pods.encode(await self._expected(attempt))
                written = read_status(self.current).written
                self.current = await write_status(self._api, self.current, {**written, "expectedPods": expected})
            case do.CreateService(attempt):
                await self._create_service(attempt)
            case do.DeletePod(name, uid, version, grace):
                path = core_path("pods", self._job.namespace, name)
                await delete_owned(self._api, path, self._owner, uid, str(version or ""), grace)
            case do.DeleteService(name):
                if self._protected:
                    await delete_owned(self._api, budgets_path(self._job.namespace, name), self._owner)
                await delete_owned(self._api, core_path("services", self._job.namespace, name), self._owner)
            case do.DeleteJob():
                await self._delete_job()
            case workload.QueueJob(queue):
                await self._ask_for_quota(queue)
            case workload.ReleaseQuota():
                await self._workload.release()
            case workload.MarkPodsReady():
                await self._workload.tell(kueue.READY, "Started", "All pods reached readiness and the workload is running")
            case workload.FinishWorkload(succeeded, message):
                await self._workload.tell(kueue.FINISHED, "Succeeded" if succeeded else "Failed", message)
            case workload.DeleteWorkload():
                await self._workload.delete()
            case RequestNodes(attempt):
                await self._request_nodes(attempt)
            case DeleteNodeRequest(request):
                await self._delete_request(request)
            case do.Wake():
                pass  # the queue's business
            case _:
                raise Bug(f"no way to perform {action}")

    async def _ask_for_quota(self, queue: str) -> None:
        """Raises NotMade or NameTaken where the pods could not be created now, or the Workload cannot."""
        attempt = read_status(self.current).attempt
        pods = {role.name: await self._tried(role, attempt) for role in self._job.roles}
        try:
            body = await self._workload.body(queue, pods)
        except NotFound as missing:
            raise NotMade(422, "Invalid", f"label {kueue.PRIORITY_LABEL}: {missing.message}", kueue.KIND) from missing
        if not workload.asks_for(self._job, kueue.workload_of(body)):  # it would be deleted again at once
            raise NotMade(422, "Invalid", OTHER_GPUS, kueue.KIND, body["metadata"]["name"])
        path = kueue.workloads_path(self._job.namespace)
        await self._workload.move(await self._create(path, body), queue)

    async def _request_nodes(self, attempt: int) -> None:
        """First what the request points at. Raises NotMade or NameTaken."""
        if self._nodes is None:
            raise Bug("nodes are asked for where no autoscaler is")
        pods = {role.name: await self._tried(role, attempt) for role in self._job.roles}
        for template in provisioning.templates(self._job, attempt, pods):
            await self._create(core_path(provisioning.TEMPLATES, self._job.namespace), template)
        body = provisioning.request(self._job, attempt, self._nodes.class_name)
        await self._create(provisioning.requests_path(self._job.namespace), body)

    async def _delete_request(self, request: NodeRequest) -> None:
        """Last the request itself: as long as it stands, its PodTemplates are found."""
        for name in request.templates:
            await delete_owned(self._api, core_path(provisioning.TEMPLATES, self._job.namespace, name), self._owner)
        await delete_owned(self._api, provisioning.requests_path(self._job.namespace, request.name), self._owner)

    async def _expected(self, attempt: int) -> ExpectedPods:
        """What the API server says that the pods will ask for. Raises NotMade or NameTaken where they, or what stands beside
        them, could not be created now.
        """
        await self._check_quota([role.name for role in self._job.roles for _ in range(role.replicas)])
        await self._create_service(attempt, dry_run=True)
        pods = {role.name: expected_pods.trimmed(await self._tried(role, attempt)) for role in self._job.roles}
        reason = pods_first.reason(pods.values())
        return ExpectedPods(attempt, timestamps.encode(time.time()), {} if reason else pods, reason)

    async def _create_service(self, attempt: int, *, dry_run: bool = False) -> None:
        """And before it the budget: where the Service stands, the budget stands."""
        if self._protected:
            await self._create(budgets_path(self._job.namespace), render.budget(self._job, attempt), dry_run=dry_run)
        await self._create(core_path("services", self._job.namespace), render.service(self._job, attempt), dry_run=dry_run)

    async def _tried(self, role: Role, attempt: int) -> Object:
        """A role's first pod as the API server would admit it."""
        body = self._pod(role, 0, attempt)
        return await self._create(core_path("pods", self._job.namespace), body, dry_run=True)

    async def _create_pod(self, action: do.CreatePod) -> None:
        """Rendered when it can be sent: the bodies of a whole gang at once could be more than the process has memory for."""
        async with self._room:
            body = self._pod(self._role(action.role), action.index, action.attempt)
            await self._create(core_path("pods", self._job.namespace), body)

    async def _create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """POST; where the name is taken, ours is taken as created and a stranger's is refused."""
        kind, name = body["kind"], body["metadata"]["name"]
        try:
            return await self._api.create(path, body, dry_run=dry_run)
        except Rejected as rejected:
            if rejected.reason != "AlreadyExists":
                raise NotMade(rejected.status, rejected.reason, rejected.message, kind, name) from rejected
        found = await self._api.get(f"{path}/{name}")
        if job_owner.readable(found["metadata"]) != self._owner:
            raise NameTaken(kind, name)
        return found

    async def _delete_job(self) -> None:
        """As it was when it was found to have outlived its time. Raises Conflict: it was changed, and may have more now."""
        with suppress(NotFound):
            version = self.current["metadata"]["resourceVersion"]
            await self._api.delete(jobs_path(self._job.namespace, self._job.name), self._job.uid, version)

    def _role(self, name: str) -> Role:
        return next(role for role in self._job.roles if role.name == name)

    def _pod(self, role: Role, index: int, attempt: int) -> Object:
        keeps_node = self._keeps_node
        # As it was just written: what its pods are told is in the status before any of them exists.
        status = self.current.get("status") or {}
        batch, gradients = read_batch(status.get("batch")), read_gradients(status.get("activationGradients"))
        made = render.pod(
            self._job,
            role,
            index,
            attempt,
            image=read_image(status.get("runtimeImage")) or self._image,
            keeps_node=keeps_node,
            batch=batch,
            gradients=gradients,
            pull_secrets=self._secrets_of.get(role.name, ()),
            resource=self._resource,
            claims_scheduler=self._claims_scheduler,
        )
        if (request := consumed(self._job.name, self._nodes, attempt)) is not None:
            made = provisioning.consuming(made, request)
        return kueue.admitted(made, self._updates[role.name]) if role.name in self._updates else made
