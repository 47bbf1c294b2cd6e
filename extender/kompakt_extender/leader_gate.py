"""The one object the routes talk to: it follows kube-scheduler's Lease and hands every question to the running leader session."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from threading import Thread

import msgspec

from kompakt_client import memory
from kompakt_client.backoff import Backoff
from kompakt_client.lease import LeaseObserver
from kompakt_client.transport import ApiClient
from kompakt_core import contract
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Level, NodeState, Rejection
from kompakt_extender.cluster import Resource, Watcher
from kompakt_extender.consolidation import DEFAULT, ClusterPolicy
from kompakt_extender.custom_patterns import CustomPatterns
from kompakt_extender.deciding.process import DecidingProcess
from kompakt_extender.explain.queries import Queries
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.objects import Lease
from kompakt_extender.rejections import FilterVerdict
from kompakt_extender.verbs import Inactive
from kompakt_extender.wire import BindingArgs, ExtenderArgs

_LOG = logging.getLogger(__name__)
_LEASE = msgspec.json.Decoder(Lease)
_TICK_SECONDS = 0.25
FORGET_SECONDS = 5.0  # after the end of a session: less than a next one waits before it may decide
WEIGHING_NICENESS = 5  # see nice(2): custom edges of some must not keep processors from the pods of others
LEASE_BACKOFF = Backoff(0.1, 1.0)  # who renews must be seen soon: a takeover waits for it


class LeaderGate:
    """Answers verbs and health. Active only while kube-scheduler beside this process holds the Lease."""

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        identity: str,
        metrics: ExtenderMetrics,
        levels: Mapping[Level, str],
        policy: ClusterPolicy = DEFAULT,
        resource: str = contract.RESOURCE,
        devices: ClaimedDevices | None = None,
        keep_nodes_after: int = 0,
    ) -> None:
        """`resource`: by which name GPUs are offered and asked for. `devices`: which pods get by ResourceClaims instead.
        `keep_nodes_after`: as for LeaderSession.
        """
        self._keep_nodes_after = keep_nodes_after
        self._api = api
        self._devices = devices
        self._resource = resource
        self._namespace = namespace
        self._identity = identity
        self._metrics = metrics
        self._levels = levels
        self._policy = policy
        self._weighing = DecidingProcess("kompakt_extender.deciding.weighing:weigher", niceness=WEIGHING_NICENESS)
        self._weights = CustomPatterns(self._weighing)
        self._tenancy = LeaseObserver()
        self._session: LeaderSession | None = None
        self._since = self._tenancy  # the Lease as it was when it was last known to have stayed ours
        self._was_active = False
        self._lease_listed = False
        self._watcher: Watcher[Lease] | None = None

    async def run(self) -> None:
        """Follow the Lease until cancelled."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        selector = {"fieldSelector": f"metadata.name={contract.SCHEDULER_LEASE}"}
        # The holder renews every 2 s: a watch that is silent for longer is dead, or nobody holds the Lease.
        resource = Resource(
            "lease",
            path,
            _LEASE.decode,
            by_name=True,
            query=selector,
            watch_seconds=30,
            silence_seconds=6.0,
            backoff=LEASE_BACKOFF,
        )
        self._watcher = Watcher(self._api, resource, self, self._listed)
        self._watcher.start()
        try:
            while True:
                self._decide()
                await asyncio.sleep(_TICK_SECONDS)
        finally:
            self._watcher.stop()
            self._end()
            await self._weighing.stop()

    # Sink of the Lease watch

    def replace(self, views: Mapping[str, Lease]) -> None:
        self._observe(next(iter(views.values()), None))

    def set(self, key: str, view: Lease) -> None:
        self._observe(view)

    def remove(self, key: str) -> None:
        self._observe(None)

    def _listed(self, name: str) -> None:
        self._lease_listed = True

    def _observe(self, lease: Lease | None) -> None:
        self._tenancy = self._tenancy.observe(lease.spec if lease else None, time.monotonic())
        self._decide()

    def _decide(self) -> None:
        """Called when the Lease changes and by the clock, since a silent Lease is no event.

        A session ends only when somebody else may have decided since it began. Until then it keeps what it knows, and decides
        nothing while the Lease is nobody's.
        """
        active = self._active()
        if active != self._was_active:
            self._was_active = active
            _LOG.log(*self._turned(active))
        self._metrics.active.set(active)
        if not active:
            self._metrics.gangs.clear()  # what was counted last is not so any more, and another process counts
        if self._session is not None and not self._tenancy.only(self._identity, self._since):
            _LOG.warning("somebody else may have held the scheduler's Lease; everything is to be read anew")
            self._end()
        self._since = self._tenancy
        if active and self._session is None:
            self._session = self._new_session()
            self._session.start()

    def _new_session(self) -> LeaderSession:
        return LeaderSession(
            self._api,
            self._metrics,
            self._active,
            self._levels,
            self._policy,
            weights=self._weights,
            left=self._restored,
            resource=self._resource,
            devices=self._devices,
            keep_nodes_after=self._keep_nodes_after,
        )

    def _turned(self, active: bool) -> tuple[int, str]:
        """What the log says, and how urgently."""
        if active:
            return logging.INFO, f"active: {self._tenancy.holder} holds the scheduler's Lease"
        return logging.WARNING, f"inactive: {self._tenancy.why_not(self._identity, time.monotonic())}"

    def _end(self) -> None:
        """What the session knew goes with it: it is cyclic and was passed over by all collections, and a next one needs the room.

        Not at once: what it began (writes, threads that read) refers to it until it has ended.
        """
        if self._session is not None:
            self._session.stop()
            asyncio.get_running_loop().call_later(FORGET_SECONDS, _forget, self._session.readers)
            self._session = None

    def _restored(self, why: str) -> None:
        """etcd is another one: what the session has learned may never have happened. The next one begins with the next tick."""
        _LOG.error("everything is read anew: %s", why)
        self._end()

    def _active(self) -> bool:
        """Also asked from the threads that write; reads one attribute, which is replaced as a whole."""
        return self._tenancy.active(self._identity, time.monotonic())

    def _serving(self) -> LeaderSession:
        if self._session is None or not self._active():
            raise Inactive(self._tenancy.why_not(self._identity, time.monotonic()))
        if self._session.missing:
            raise Inactive("the extender is still reading the cluster")
        return self._session

    # Verbs and health

    async def filter(self, args: ExtenderArgs) -> FilterVerdict:
        return await self._serving().filter(args)

    def prioritize(self, args: ExtenderArgs) -> bytes:
        return self._serving().prioritize(args)

    async def bind(self, args: BindingArgs) -> Rejection | None:
        return await self._serving().bind(args)

    def queries(self) -> Queries:
        return self._serving().queries

    def states(self) -> Mapping[NodeName, NodeState]:
        session = self._session
        return {} if session is None or session.missing or not self._active() else session.ledger.snapshot().nodes

    @property
    def unconfirmed_binds(self) -> int:
        return self._session.ledger.unknown_binds if self._session is not None and self._active() else 0

    @property
    def gated_pods(self) -> int:
        session = self._session
        if session is None or session.missing or not (session.planner.running and self._active()):
            return 0
        return session.jobs.gated_pods()

    @property
    def trouble(self) -> str:
        if not self._lease_listed:
            return "the scheduler's Lease was not read yet"
        if self._session is not None and self._session.missing:
            return "not listed yet: " + ", ".join(sorted(self._session.missing))
        if self._session is not None and self._session.silent:
            return "the API server does not answer about " + ", ".join(sorted(self._session.silent))
        return ""

    @property
    def unfit(self) -> str:
        """Only while kube-scheduler renews its Lease: the API server answers it then, and not to hear it is our own fault.

        Else an API server that is away would end all kube-schedulers, and they would be long in coming back.
        """
        session = self._session
        if session is None or not self._active():
            return self.stuck
        unheard = session.stalled or session.silent
        return self.stuck or ("the API server does not answer about " + ", ".join(sorted(unheard)) if unheard else "")

    @property
    def stuck(self) -> str:
        session = self._session
        if session is not None and not session.missing and not session.planner.running:
            return "the planner has ended"
        return ""


def _forget(readers: Sequence[Thread]) -> None:
    """Once nothing reads for the session any more."""
    if any(reader.is_alive() for reader in readers):
        asyncio.get_running_loop().call_later(FORGET_SECONDS, _forget, readers)
    else:
        memory.trim()
