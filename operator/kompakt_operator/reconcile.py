"""One reconciliation of one job: read, let core decide, perform. Safe to run at any time, any number of times."""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from kompakt_client.errors import Forbidden, NotFound, Rejected
from kompakt_core import contract
from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.conditions import Condition
from kompakt_core.errors import InvalidInput
from kompakt_core.job import actions, object_names, workload
from kompakt_core.job import to_do as do
from kompakt_core.job.measured import resolved
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.phases import FINISHED
from kompakt_core.job.pods import WorkerPod, read_pod
from kompakt_core.job.provisioning import Provisioning, RequestNodes
from kompakt_core.job.spec import parse_job
from kompakt_core.job.status import JobStatus, read_status
from kompakt_core.job.workload import Queueing
from kompakt_operator import environment, injection, rejections, render
from kompakt_operator.api import OperatorApi, core_path, jobs_path
from kompakt_operator.crd import is_gone
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.garbage_collector import GarbageCollector
from kompakt_operator.kueue import QUEUE_LABEL
from kompakt_operator.observed import Observed
from kompakt_operator.perform import NameTaken, NotMade, Performer, write_status
from kompakt_operator.rejections import ObjectRejection
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue

Object = dict[str, Any]
QUOTA_TURN_SECONDS: Final = 2.0
MAKES_PODS: Final = do.CreatePod | do.TryPod | do.AskForPlaces | workload.QueueJob | RequestNodes
log = logging.getLogger(__name__)


def ours(obj: Object) -> bool:
    """Whether this operator looks after the job at all."""
    managed_by = (obj.get("spec") or {}).get("managedBy", contract.MANAGED_BY)
    return managed_by == contract.MANAGED_BY and not obj["metadata"].get("deletionTimestamp")


class Reconciler:
    """Reconciles jobs one key at a time."""

    def __init__(
        self,
        api: OperatorApi,
        observed: Observed,
        queue: WorkQueue,
        scraper: Scraper,
        announcer: EventAnnouncer,
        image: str,
        keeps_node: bool = True,
        pull_secrets: Sequence[str] = (),
        planner_patience: float = 0.0,
        resource: str = contract.RESOURCE,
        claims_scheduler: str = "",
        provisioning_class: str = "",
        ask_for_nodes_after: int = 0,
    ) -> None:
        """`planner_patience`: see core's places_first. `resource`: by which name workers ask for GPUs. `claims_scheduler`: as for
        render.pod. `provisioning_class` and `ask_for_nodes_after`: as for OperatorConfig.
        """
        self._resource, self._claims_scheduler, self._provisioning_class = resource, claims_scheduler, provisioning_class
        self._ask_for_nodes_after = ask_for_nodes_after
        self._api, self._observed, self._queue, self._scraper, self._image = api, observed, queue, scraper, image
        self._announcer, self._keeps_node, self._pull_secrets = announcer, keeps_node, pull_secrets
        self._planner_patience = planner_patience
        self._collector = GarbageCollector(api, observed, queue)
        self._short_of_quota: dict[Key, str] = {}  # and when the job was made

    async def reconcile(self, key: Key) -> bool:
        """Whether the job has pods now. Raises an ApiError, Conflict among them: requeue."""
        obj = await self._job_object(*key)
        await self._collector.reconcile(key, "" if obj is None else obj["metadata"]["uid"])
        if obj is None or not ours(obj):
            self._forget(key)
            self._scraper.forget(key)
            return False
        try:
            job = _parsed(obj)
        except InvalidInput as error:
            await self._invalid(obj, str(error))
            return True
        return await self._act(key, obj, job)

    def notice(self, obj: Object) -> None:
        """A job as a watch or a list shows it: it is put in line unless it is at rest, which of thousands most are."""
        key = obj["metadata"]["namespace"], obj["metadata"]["name"]
        try:
            rests = self._at_rest(key, obj)
        except Exception:  # what is wrong with one job must not end the list of all; its own reconciliation says what it is
            rests = False
        if not rests:
            self._queue.add(key)

    def _at_rest(self, key: Key, obj: Object) -> bool:
        """Whether reconciling would be a no-op, judged without a request; if so, all is noted as after a reconciliation."""
        if not ours(obj):
            return False
        try:
            job = _parsed(obj)
        except InvalidInput:
            return False
        pods, status, queueing = self._views(job), self._status(key, obj), self._queueing(obj, job)
        if any(pod.deleting for pod in pods):
            return False
        wanted = self._next(job, status, pods, _template_problem(job)[1], queueing)
        if not all(isinstance(action, do.Wake) for action in wanted):
            return False
        self._settle(key, job, status, wanted)
        return True

    async def _job_object(self, namespace: str, name: str) -> Object | None:
        try:
            return await self._api.get(jobs_path(namespace, name))
        except Rejected as rejected:
            if await is_gone(self._api, rejected):
                return None
            raise

    async def _act(self, key: Key, obj: Object, job: TrainingJob) -> bool:
        status = self._status(key, obj)
        queueing = self._queueing(obj, job)
        queued = queueing is not None and not queueing.unserved
        asked = self._resource, queued, self._claims_scheduler, self._provisioning(job, queueing)
        performer = Performer(self._api, self._image, obj, job, self._keeps_node, self._pull_secrets, *asked)
        problem, skipped = _template_problem(job)
        wanted = await self._decided(job, status, skipped, queueing)
        try:
            if problem and any(isinstance(action, MAKES_PODS) for action in wanted):
                raise NotMade(422, "InvalidTemplate", problem)
            await performer.perform(wanted)
        except (NotMade, NameTaken) as rejected:
            rejection = rejections.judged(rejected)
            if rejection is None:
                raise
            await self._rejected(key, job, performer, rejection)
        else:
            self._settle(key, job, status := read_status(performer.current), wanted)
            if status.expected is None and any(isinstance(action, do.AskForPlaces) for action in wanted):
                self._ask_no_more(key)
        await self._announcer.announce(obj, performer.current)
        return bool(self._views(job))

    def _ask_no_more(self, key: Key) -> None:
        """The API server dropped what was written. When the CRD changes, this process begins anew."""
        log.warning(
            "the CRD of TrainingJob has no status.expectedPods; pods are created at once until the one of this version is applied"
        )
        self._planner_patience = 0.0
        self._queue.add(key)

    def _settle(self, key: Key, job: TrainingJob, status: JobStatus, wanted: list[do.Action]) -> None:
        """All that was wanted is done: note when to reconcile again, and whom to ask for progress."""
        self._wake(key, wanted)
        self._forget(key)
        if status.finished:
            self._scraper.forget(key)
        else:
            self._scraper.follow(key, job.uid, self._rank_0(job, status))

    def _status(self, key: Key, obj: Object) -> JobStatus:
        """As it stands in the object, but for what is news of the training's progress, pace and compression."""
        status, heard = read_status(obj), self._scraper
        whose = key, obj["metadata"]["uid"], status.attempt
        said = heard.said(*whose) or status.progress
        return replace(status, progress=said, pace=heard.pace(*whose), heard=heard.compression(*whose))

    def _rank_0(self, job: TrainingJob, status: JobStatus) -> WorkerPod | None:
        """The pod that can be asked now."""
        role = environment.gpu_roles(job)[0]
        if not injection.serves(job, role):
            return None
        name = object_names.pod_name(job.name, role.name, 0, status.attempt)
        pod = next((pod for pod in self._observed.pods(render.owner_of(job)) if pod.name == name), None)
        return pod if pod is not None and pod.ip and pod.phase == "Running" and not pod.deleting else None

    def _queueing(self, obj: Object, job: TrainingJob) -> Queueing | None:
        """A job whose label is taken off stays in the queue: nobody leaves a quota so."""
        found = self._observed.workload(render.owner_of(job))
        queue = (obj["metadata"].get("labels") or {}).get(QUEUE_LABEL, "") or (found.queue if found is not None else "")
        return Queueing(queue, found, self._observed.without_kueue) if queue else None

    async def _decided(self, job: TrainingJob, status: JobStatus, skipped: str, queueing: Queueing | None) -> list[do.Action]:
        """Decide on what the watch has shown; what ends an attempt or a job is decided again on a fresh list."""
        wanted = self._next(job, status, await self._with_nodes(self._views(job)), skipped, queueing)
        if not _ends_attempt(status, wanted):
            return wanted
        path, selector = core_path("pods", job.namespace), worker_labels.job_selector(job.uid)
        listed = [obj async for obj in self._api.listed(path, labelSelector=selector)]
        own = [read_pod(obj) for obj in listed if job_owner.readable(obj["metadata"]) == render.owner_of(job)]
        views = self._with_gpus(pod for pod in own if pod is not None)
        return self._next(job, status, await self._with_nodes(views), skipped, queueing)

    def _next(
        self, job: TrainingJob, status: JobStatus, pods: list[WorkerPod], skipped: str, queueing: Queueing | None
    ) -> list[do.Action]:
        return actions.next_actions(
            job,
            status,
            pods,
            self._observed.services(render.owner_of(job)),
            time.time(),
            skipped=skipped,
            runtime=self._image,
            planner_patience=self._planner_patience,
            queueing=queueing,
            provisioning=self._provisioning(job, queueing),
        )

    def _provisioning(self, job: TrainingJob, queueing: Queueing | None) -> Provisioning | None:
        """A job in a queue has its nodes by Kueue's own check."""
        if not self._provisioning_class or queueing is not None or not self._observed.autoscaler.is_set():
            return None
        found = self._observed.node_request(render.owner_of(job))
        return Provisioning(self._provisioning_class, found, self._ask_for_nodes_after)

    async def _with_nodes(self, pods: list[WorkerPod]) -> list[WorkerPod]:
        """The pods; those on their way out with what is known of their node."""
        leaving = {pod.node for pod in pods if pod.deleting and pod.node}
        lost = {node for node in sorted(leaving) if await self._is_lost(node)}
        return [replace(pod, node_lost=pod.deleting and pod.node in lost) for pod in pods]

    def _views(self, job: TrainingJob) -> list[WorkerPod]:
        """The job's pods, with what is known of their GPUs."""
        return self._with_gpus(self._observed.pods(render.owner_of(job)))

    def _with_gpus(self, pods: Iterable[WorkerPod]) -> list[WorkerPod]:
        return [replace(pod, unhealthy=self._observed.unhealthy_reason(pod)) for pod in pods]

    async def _is_lost(self, name: str) -> bool:
        """Whether a node is gone or not Ready: its pods may never be confirmed as ended."""
        try:
            node = await self._api.get(f"/api/v1/nodes/{name}")
        except Forbidden:  # with rights in one namespace only, nodes cannot be read
            return False
        except NotFound:
            return True
        conditions = (node.get("status") or {}).get("conditions") or ()
        return not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)

    def _wake(self, key: Key, wanted: list[do.Action]) -> None:
        for action in wanted:
            if isinstance(action, do.Wake):
                self._queue.add_after(key, action.at - time.time())

    async def _rejected(self, key: Key, job: TrainingJob, performer: Performer, rejection: ObjectRejection) -> None:
        """Say why the gang cannot be made; take back what exists of it; try later unless that is useless."""
        told, final = rejection.condition, rejection.final
        status = read_status(performer.current)
        pods = list(self._observed.pods(render.owner_of(job)))
        await performer.perform(actions.rejected(job, status, pods, told, time.time(), final=final, of_gang=rejection.of_gang))
        delay = 0.0 if final else self._queue.hold(key, self._turn(key, performer.current, told))
        log.warning("%s/%s: %s: %s%s", *key, told.reason, told.message, f"; again in {delay:.0f} s" if delay else "")

    def _forget(self, key: Key) -> None:
        self._queue.forget(key)
        self._short_of_quota.pop(key, None)

    def _turn(self, key: Key, obj: Object, told: Condition) -> float:
        """Seconds by which a job waits longer than its elders of the namespace for the same quota.

        Without it two gangs, each half made and taken back, could keep each other from ever being whole.
        """
        if told.reason != "QuotaExceeded":
            return 0.0
        made = self._short_of_quota[key] = obj["metadata"]["creationTimestamp"]
        elders = sum(k[0] == key[0] and (m, k) < (made, key) for k, m in self._short_of_quota.items())
        return QUOTA_TURN_SECONDS * elders

    async def _invalid(self, obj: Object, message: str) -> None:
        """A stored object that the parser refuses; one that already runs is left alone but says so."""
        for action in actions.invalid(obj["metadata"].get("generation", 0), read_status(obj), message, time.time()):
            if isinstance(action, do.WriteStatus):
                await self._announcer.announce(obj, await write_status(self._api, obj, action.status))


def _parsed(obj: Object) -> TrainingJob:
    """Raises InvalidInput."""
    return resolved(parse_job(obj), (obj.get("status") or {}).get("profile") or {})


def _template_problem(job: TrainingJob) -> tuple[str, str]:
    """Why the job cannot be rendered, and why the start-up hook is left out; "" for neither."""
    try:
        return "", render.checked(job)
    except InvalidInput as error:
        return str(error), ""


def _ends_attempt(status: JobStatus, wanted: list[do.Action]) -> bool:
    writes = [action.status for action in wanted if isinstance(action, do.WriteStatus)]
    return status.attempt > 0 and any(w["attempt"] > status.attempt or w["phase"] in set(FINISHED) for w in writes)
