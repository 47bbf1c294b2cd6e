"""The time during which nobody else decides: it begins with one consistent list of everything and leaves nothing behind.

While the Lease is nobody's, nothing is decided, and what is known is kept up to date.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import quote

from kompakt_client import memory
from kompakt_client.requests import ApiRequest
from kompakt_client.transport import ApiClient
from kompakt_core import contract
from kompakt_core.contract import gpu_claim
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.placement.model import Level, Rejection
from kompakt_extender.allocated_gpus import read_claim, read_slice
from kompakt_extender.answers import Answers
from kompakt_extender.binder import Binder
from kompakt_extender.clock import utc_now
from kompakt_extender.cluster import Resource, Watcher
from kompakt_extender.consolidation import DEFAULT, ClusterPolicy
from kompakt_extender.counts_history import CountsHistory
from kompakt_extender.custom_patterns import Weights
from kompakt_extender.event_handlers import EventHandlers, KeyedSink
from kompakt_extender.explain.queries import Queries
from kompakt_extender.gang_objects import GangObjects
from kompakt_extender.jobs import Jobs
from kompakt_extender.kept_nodes import KeptNodes
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.limits_in_force import read_limits, read_namespace
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.offered_gpus import read_rule
from kompakt_extender.placement_history import PlacementHistory
from kompakt_extender.planner.loop import Planner
from kompakt_extender.project import read_node
from kompakt_extender.project_gang import read_gang
from kompakt_extender.project_job import read_job
from kompakt_extender.project_topology import TopologyReader
from kompakt_extender.rejections import FilterVerdict
from kompakt_extender.release_writer import ReleaseWriter
from kompakt_extender.resource_claims import ResourceClaims
from kompakt_extender.retries import Retries
from kompakt_extender.unreadable_pods import read_pod_or_holding
from kompakt_extender.wire import BindingArgs, ExtenderArgs
from kompakt_extender.writer import Writer

SILENT_SECONDS = 150.0
STALLED_SECONDS = 30.0
_LOG = logging.getLogger(__name__)
_KOMPAKT = f"/apis/{contract.API_VERSION}"
_View = TypeVar("_View")


class LeaderSession:
    """Caches, ledger, planner and binder of one active time."""

    def __init__(
        self,
        api: ApiClient,
        metrics: ExtenderMetrics,
        may_write: Callable[[], bool],
        levels: Mapping[Level, str],
        policy: ClusterPolicy = DEFAULT,
        *,
        weights: Weights | None = None,
        left: Callable[[str], None] | None = None,
        resource: str = contract.RESOURCE,
        devices: ClaimedDevices | None = None,
        keep_nodes_after: int = 0,
    ) -> None:
        """`left` is told why nothing known here can be trusted any more, should it come to that. `resource`: by which name GPUs
        are offered and asked for. `devices`: which pods get by ResourceClaims instead. `keep_nodes_after`: as for KeptNodes, in
        seconds; 0: no node is kept.
        """
        self._metrics, self._left, self._by_claims = metrics, left, devices is not None
        self.ledger, self.jobs = GpuLedger(), Jobs()
        self.answers = Answers(self.ledger, self.jobs, weights, resource)
        writer = Writer(api, may_write)
        self.retries = Retries(self.answers, self.ledger, writer, utc_now, may_write=may_write)
        claims = None if devices is None else ResourceClaims(writer, devices)
        releaser = ReleaseWriter(writer, lambda pod: handlers.see_pod(pod), resource=resource, resource_claims=claims)
        self.planner = Planner(self.ledger, self.jobs, releaser, metrics, utc_now, levels, policy, may_decide=may_write)
        decisions = PlacementHistory(self.ledger, utc_now, self.answers.boards.peek, metrics, weights)
        self.history = CountsHistory(self.ledger, self.jobs, utc_now)
        self.queries = Queries(
            self.ledger, self.jobs, decisions, utc_now, weights, resource, self.history, lambda *job: _status(api, *job)
        )
        self.binder = Binder(
            writer, self.ledger, metrics, self.jobs.released, self.answers.patterns, note=decisions.note, resource=resource
        )
        self.gang_objects = GangObjects(self.jobs, writer, may_write)
        self._kept = KeptNodes(self.ledger, writer, may_write, after=keep_nodes_after) if keep_nodes_after else None
        handlers = EventHandlers(self.ledger, self.jobs, self.planner, metrics, self.gang_objects.touch, devices)
        self._watchers = [*self._watch(api, handlers, resource), *(self._watch_claims(api, handlers) if devices else ())]
        self._missing = {watcher.name for watcher in self._watchers}
        self.readers: list[Thread] = []  # they refer to all that is known here until they have ended

    def _watch(self, api: ApiClient, handlers: EventHandlers, resource: str) -> list[Watcher[Any]]:
        topologies = f"{_KOMPAKT}/{contract.TOPOLOGY_PLURAL}"
        jobs = f"{_KOMPAKT}/{contract.JOB_PLURAL}"
        gangs = f"{_KOMPAKT}/{contract.GANG_PLURAL}"
        limits = f"{_KOMPAKT}/{contract.LIMITS_PLURAL}"
        reader = TopologyReader()

        def watcher(what: Resource[Any], sink: KeyedSink[Any]) -> Watcher[Any]:
            return Watcher(api, what, sink, self._listed, self._left)

        def read(reader: Callable[[bytes, str], _View]) -> Callable[[bytes], _View]:
            return lambda raw: reader(raw, resource)

        return [
            watcher(Resource("pods", "/api/v1/pods", read(read_pod_or_holding)), handlers.pods()),
            watcher(Resource("nodes", "/api/v1/nodes", read(read_node), by_name=True), handlers.nodes()),
            watcher(Resource("gputopologies", topologies, reader, by_name=True), handlers.topologies(reader.forget)),
            watcher(Resource("trainingjobs", jobs, read(read_job)), handlers.training_jobs()),
            watcher(Resource("gangs", gangs, read_gang, by_name=True, optional=True), handlers.gangs()),
            watcher(Resource("joblimits", limits, read_limits, by_name=True), handlers.limits()),
            watcher(Resource("namespaces", "/api/v1/namespaces", read_namespace, by_name=True), handlers.namespaces()),
        ]

    def _watch_claims(self, api: ApiClient, handlers: EventHandlers) -> list[Watcher[Any]]:
        where = f"/apis/{gpu_claim.API_VERSION}"
        slices = Resource("resourceslices", f"{where}/resourceslices", read_slice, by_name=True)
        claims = Resource("resourceclaims", f"{where}/{gpu_claim.PLURAL}", read_claim)
        # Kubernetes 1.37 serves them; before, taints stand in slices alone.
        rules = Resource("devicetaintrules", f"{where}/devicetaintrules", read_rule, by_name=True, optional=True)
        return [
            Watcher(api, slices, handlers.slices(), self._listed, self._left),
            Watcher(api, claims, handlers.claims(), self._listed, self._left),
            Watcher(api, rules, handlers.taint_rules(), self._listed, self._left),
        ]

    def start(self) -> None:
        self.readers += [watcher.start() for watcher in self._watchers]

    def stop(self) -> None:
        """Halt at once."""
        self.planner.stop()
        self.retries.stop()
        self.gang_objects.stop()
        self.history.stop()
        if self._kept is not None:
            self._kept.stop()
        self.binder.stop()
        for watcher in self._watchers:
            watcher.stop()

    @property
    def missing(self) -> set[str]:
        """What is not listed yet; nothing is decided before all is."""
        return self._missing

    @property
    def silent(self) -> list[str]:
        """What the API server has not answered about for longer than any watch may be quiet."""
        return [watcher.name for watcher in self._watchers if watcher.silent_seconds > SILENT_SECONDS]

    @property
    def stalled(self) -> list[str]:
        """What is not listed yet, if no page of any of it came for a while."""
        missing = [watcher for watcher in self._watchers if watcher.name in self._missing]
        waits = min((watcher.silent_seconds for watcher in missing), default=0.0)
        return [watcher.name for watcher in missing] if waits > STALLED_SECONDS else []

    def _listed(self, name: str) -> None:
        self._metrics.relists.labels(name).inc()
        if name in self._missing:
            self._missing.discard(name)
            if not self._missing:
                nodes, pods, jobs = len(self.ledger.nodes), len(self.ledger.pods), len(self.jobs.views)
                _LOG.info("all listed: %d nodes, %d pods, %d jobs", nodes, pods, jobs)
                memory.trim()  # the caches live long: the collector need not walk 5,000 nodes again and again
                self.planner.adopt()
                self.planner.start()
                if not self._by_claims:  # kube-scheduler asks nothing there, so nothing was rejected
                    self.retries.start()
                self.gang_objects.start()
                self.history.begin()
                if self._kept is not None:
                    self._kept.start()
                return
        if not self._missing:  # a comparison has read everything once more
            asyncio.get_running_loop().run_in_executor(None, memory.give_back)

    # Verbs

    async def filter(self, args: ExtenderArgs) -> FilterVerdict:
        await self.answers.prepare(args)
        verdict = self.answers.filter(args)
        self.retries.answered(args, verdict)
        return verdict

    def prioritize(self, args: ExtenderArgs) -> bytes:
        return self.answers.prioritize(args)

    async def bind(self, args: BindingArgs) -> Rejection | None:
        return await self.binder.bind(args)


def _status(api: ApiClient, namespace: str, name: str) -> Mapping[str, Any]:
    """A TrainingJob's status as the API server has it: the caches keep only what decides. Raises an ApiError."""
    path = f"/apis/{contract.API_VERSION}/namespaces/{quote(namespace, safe='')}/{contract.JOB_PLURAL}/{quote(name, safe='')}"
    found = api.json(ApiRequest("GET", path, seconds=5.0)).get("status")
    return found if isinstance(found, dict) else {}
