"""Pods that no TrainingJob made and that end for a gang: which may, and their eviction.

Such a pod has nobody who would end it as asked, as the operator ends jobs. It is evicted, which its PodDisruptionBudgets may
refuse. Whoever made it makes it anew; a bare pod would be lost, and ends only where the administrator says so.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain
from typing import Final

from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.contract.scheduling_record import Victim
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.policy.preempt import RunningGang
from kompakt_extender.gangs import running_pod
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.release_writer import Eviction, ReleaseWriter
from kompakt_extender.views import PodView

_LOG = logging.getLogger(__name__)
AGAIN_SECONDS: Final = 10.0  # after an eviction of which nothing came
REFUSED_SECONDS: Final = 600.0  # so long a pod whose budget refuses is left alone


class PlainPods:
    """Knows which plain pods may be evicted, and evicts them."""

    def __init__(
        self, ledger: GpuLedger, releaser: ReleaseWriter, metrics: ExtenderMetrics, clock: Callable[[], datetime], *, bare: bool
    ) -> None:
        """`bare`: whether pods that nothing makes anew may end as well."""
        self._ledger, self._releaser, self._metrics, self._clock = ledger, releaser, metrics, clock
        self._bare = bare
        self._changed = ledger.subscribe()
        self._on: dict[NodeName, tuple[RunningGang, ...]] = {}
        self._asked: dict[PodUid, float] = {}  # seconds since the epoch: when it is asked again at the earliest
        self._unheard: dict[PodUid, PreemptRequest] = {}  # whose eviction got no answer: what their owners are to be told
        self._refused: dict[PodUid, float] = {}  # until when it is left alone
        self._busy: dict[PodUid, asyncio.Task[None]] = {}

    @property
    def busy(self) -> tuple[asyncio.Task[None], ...]:
        """The evictions under way."""
        return tuple(self._busy.values())

    def stop(self) -> None:
        """Halt all at once."""
        for task in self._busy.values():
            task.cancel()

    def running(self) -> Iterator[RunningGang]:
        """Those that could end, each as a gang of one whose attempt is 0. There may be as many as GPUs: only nodes that changed
        are looked at again.
        """
        for node in self._changed:
            self._on[node] = tuple(self._running_on(node))
        self._changed.clear()
        return chain.from_iterable(self._on.values())

    def _running_on(self, node: NodeName) -> Iterator[RunningGang]:
        topology = self._ledger.topologies.get(node)
        if topology is None or topology.graph is None:
            return
        for pod in self._ledger.bound_to(node).values():
            found = running_pod(pod, topology.graph) if self.may_be_evicted(pod) else None
            if found is not None:
                yield found

    def left_alone(self) -> set[str]:
        """The uids of those whose budgets refused a short while ago."""
        now = self._clock().timestamp() if self._refused else 0.0
        return {uid for uid, until in self._refused.items() if until > now}

    def find(self, victim: Victim) -> PodView | None:
        """The pod, as long as it is there and runs: a plain one, or one of a gang that others made."""
        pod = None if victim.attempt else self._ledger.pods.get(PodUid(victim.uid))
        return None if pod is None or pod.finished or (pod.job_uid and pod.gang is None) else pod

    def may_be_evicted(self, pod: PodView) -> bool:
        """Whether it comes back, or may be lost."""
        return self._bare or pod.controlled

    def evict(self, pod: PodView, request: PreemptRequest, refused: Callable[[], None]) -> None:
        """Have it end, unless that was asked already; `refused` is called where its budget does not let it."""
        now = self._clock().timestamp()
        if pod.uid in self._busy:
            return
        if pod.deleting:
            if pod.uid in self._unheard:
                self._busy[pod.uid] = asyncio.create_task(self._tell(pod, self._unheard.pop(pod.uid)))
            return
        if self._asked.get(pod.uid, 0.0) > now:
            return
        self._forget(now)
        if pod.uid not in self._asked:
            self._metrics.preemptions.inc()
        self._asked[pod.uid] = now + AGAIN_SECONDS
        self._busy[pod.uid] = asyncio.create_task(self._evict(pod, request, refused))

    async def _evict(self, pod: PodView, request: PreemptRequest, refused: Callable[[], None]) -> None:
        try:
            outcome = await self._releaser.evict(pod)
        finally:
            self._busy.pop(pod.uid, None)
        _LOG.info("pod %s/%s is evicted for a job of higher priority: %s", pod.namespace, pod.name, outcome.value)
        if outcome is Eviction.UNKNOWN:
            self._unheard[pod.uid] = request
        elif outcome is Eviction.DONE or (outcome is Eviction.GONE and pod.uid in self._unheard):
            self._unheard.pop(pod.uid, None)
            self._busy[pod.uid] = asyncio.create_task(self._tell(pod, request))
        elif outcome is Eviction.REFUSED:
            self._refused[pod.uid] = self._clock().timestamp() + REFUSED_SECONDS
            refused()

    async def _tell(self, pod: PodView, request: PreemptRequest) -> None:
        """Its owner, why it went."""
        try:
            await self._releaser.tell_evicted(pod, request, self._clock())
        finally:
            self._busy.pop(pod.uid, None)

    def _forget(self, now: float) -> None:
        """What is over, or of pods that are gone."""
        self._unheard = {uid: request for uid, request in self._unheard.items() if uid in self._ledger.pods}
        self._asked = {uid: at for uid, at in self._asked.items() if uid in self._ledger.pods}
        self._refused = {uid: until for uid, until in self._refused.items() if until > now}
