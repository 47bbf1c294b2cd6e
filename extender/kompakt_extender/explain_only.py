"""Explanations alone: nothing is decided by this process, and there is no kube-scheduler beside it."""

import asyncio
import logging
from collections.abc import Mapping

from kompakt_client.transport import ApiClient
from kompakt_core import contract
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Level, NodeState
from kompakt_extender.custom_patterns import CustomPatterns
from kompakt_extender.deciding.process import DecidingProcess
from kompakt_extender.explain.queries import Queries
from kompakt_extender.leader_gate import WEIGHING_NICENESS
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.verbs import Inactive

_LOG = logging.getLogger(__name__)


class ExplainOnly:
    """Reads the cluster as a leader does, and answers what the health port is asked. Any number of such processes may run."""

    def __init__(
        self, api: ApiClient, metrics: ExtenderMetrics, levels: Mapping[Level, str], resource: str = contract.RESOURCE
    ) -> None:
        """`resource`: by which name GPUs are offered and asked for."""
        self._api, self._metrics, self._levels, self._resource = api, metrics, levels, resource
        self._weighing = DecidingProcess("kompakt_extender.deciding.weighing:weigher", niceness=WEIGHING_NICENESS)
        self._session: LeaderSession | None = None

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        self._begin()
        try:
            await asyncio.Event().wait()
        finally:
            self._end()
            await self._weighing.stop()

    def queries(self) -> Queries:
        session = self._session
        if session is None or session.missing:
            raise Inactive("the extender is still reading the cluster")
        return session.queries

    def states(self) -> Mapping[NodeName, NodeState]:
        session = self._session
        return {} if session is None or session.missing else session.ledger.snapshot().nodes

    @property
    def unconfirmed_binds(self) -> int:
        return 0  # it binds nothing

    @property
    def gated_pods(self) -> int:
        return 0  # nor does it plan

    @property
    def trouble(self) -> str:
        session = self._session
        if session is None or session.missing:
            return "not listed yet: " + ", ".join(sorted(session.missing) if session else ["anything"])
        if session.silent:
            return "the API server does not answer about " + ", ".join(sorted(session.silent))
        return ""

    @property
    def stuck(self) -> str:
        return ""

    @property
    def unfit(self) -> str:
        """There is no kube-scheduler whose Lease could go to another."""
        return ""

    def _begin(self) -> None:
        self._session = LeaderSession(
            self._api,
            self._metrics,
            lambda: False,
            self._levels,
            weights=CustomPatterns(self._weighing),
            left=self._restored,
            resource=self._resource,
        )
        self._session.start()

    def _end(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def _restored(self, why: str) -> None:
        """etcd is another one: what was learned may never have happened."""
        _LOG.error("everything is read anew: %s", why)
        self._end()
        self._begin()
