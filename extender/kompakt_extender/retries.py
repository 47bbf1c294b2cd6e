"""Has kube-scheduler try rejected pods again once they would be answered otherwise.

kube-scheduler tries a pod that an extender rejected again when it sees any change of a pod or node, and else after five minutes
(pkg/scheduler/backend/queue/scheduling_queue.go of Kubernetes 1.37). It does not watch GPUTopologies, and it may see a pod go
before this process does: asked between the two, we reject a pod that would fit a moment later, and in a quiet cluster nobody
asks again. A change of the pod's own metadata is such a change too, so an annotation says when we would answer otherwise.
What the process before this one rejected is not known here: of the pods that wait when this one begins, those that nobody asks
about are annotated once.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kompakt_client.requests import MERGE_PATCH
from kompakt_core.contract import retried_at
from kompakt_core.errors import TryLater
from kompakt_core.ids import PodUid
from kompakt_core.placement.model import Reason
from kompakt_extender.answers import Answers
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.objects import NULL
from kompakt_extender.rejections import FilterVerdict
from kompakt_extender.views import PodView
from kompakt_extender.wire import ExtenderArgs
from kompakt_extender.writer import NotSent, Sender

_LOG = logging.getLogger(__name__)
ROUND_SECONDS: Final = 1.0
# kube-scheduler has seen the change as well by then, and mostly asks by itself.
PATIENCE_SECONDS: Final = 2.0
# kube-scheduler's longest backoff: a pod that waits for its turn there is asked about without us.
PAUSE_SECONDS: Final = 10.0
MOST: Final = 128  # pods remembered; in a cluster with more of them waiting, changes that kube-scheduler sees are never far
_NEVER: Final = (-1, -1)
AT_ONCE: Final = 8  # pods looked at in a round: each costs as much as one call of filter, or a write


class _Rejected(Struct):
    """A pod that no node could take, and what had been known when that was said."""

    args: ExtenderArgs
    reasons: Counter[str]
    version: tuple[int, int]  # of the answers
    answered: float  # on the clock
    told: float = -PAUSE_SECONDS  # when its annotation was written, on the clock


class Retries:
    """Remembers rejected pods, and looks at them anew while nobody asks."""

    def __init__(
        self,
        answers: Answers,
        ledger: GpuLedger,
        writer: Sender,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        *,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_write`: nothing is annotated while that says no."""
        self._answers, self._ledger, self._writer = answers, ledger, writer
        self._now, self._clock, self._may_write = now, clock, may_write
        self._rejected: dict[str, _Rejected] = {}  # by uid; the one looked at last stands last
        self._unasked: dict[str, None] = {}  # uids of pods that waited when this began, and that nobody has asked about since
        self._unasked_since = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Call when the ledger shows all pods."""
        waiting = (uid for uid, pod in self._ledger.pods.items() if _waits(pod))
        self._unasked = dict.fromkeys(islice(waiting, MOST))
        self._unasked_since = self._clock()
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def answered(self, args: ExtenderArgs, verdict: FilterVerdict) -> None:
        """kube-scheduler asked about a pod and got this verdict."""
        uid = args.pod.metadata.uid
        self._unasked.pop(uid, None)
        before = self._rejected.pop(uid, None)
        if verdict.node_names or any(one.reason is Reason.INVALID_REQUEST for one in verdict.rejected.values()):
            return  # a request that cannot be read stays so
        if len(self._rejected) >= MOST:
            del self._rejected[next(iter(self._rejected))]
        told = before.told if before else -PAUSE_SECONDS
        self._rejected[uid] = _Rejected(_slim(args), verdict.reasons, self._answers.version, self._clock(), told)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                if self._may_write():
                    await self.run_round()
            except Exception:
                _LOG.exception("rejected pods were not looked at")

    async def run_round(self) -> None:
        """Annotate the pods that would be answered otherwise now."""
        if self._unasked and self._clock() >= self._unasked_since + PAUSE_SECONDS:
            await self._tell_unasked()
        for uid, pod in list(self._due()):
            if self._rejected.get(uid) is pod and self._answered_otherwise(pod):
                await self._tell(uid, pod)
            await asyncio.sleep(0)  # whoever asks a verb waits for one look at most

    async def _tell_unasked(self) -> None:
        """Annotate some of them. One for which that fails comes last, and all wait another pause."""
        for uid in list(islice(self._unasked, AT_ONCE)):
            self._unasked.pop(uid, None)
            pod = self._ledger.pods.get(PodUid(uid))
            if pod is not None and _waits(pod) and await self._annotate(pod.namespace, pod.name, uid) is None:
                self._unasked[uid] = None
                self._unasked_since = self._clock()
                return

    def _due(self) -> Iterator[tuple[str, _Rejected]]:
        """At most AT_ONCE pods whose answer may have become another one; those that need none any more are forgotten."""
        now, found = self._clock(), 0
        for uid, pod in list(self._rejected.items()):
            known = self._ledger.pods.get(PodUid(uid))
            if known is not None and (known.node is not None or known.finished):
                del self._rejected[uid]
            elif pod.version != self._answers.version and now >= max(pod.answered + PATIENCE_SECONDS, pod.told + PAUSE_SECONDS):
                self._rejected[uid] = self._rejected.pop(uid)  # to the end: those behind it come first next time
                yield uid, pod
                found += 1
            if found == AT_ONCE:
                return

    def _answered_otherwise(self, pod: _Rejected) -> bool:
        verdict = self._answers.filter(pod.args)
        pod.version = self._answers.version
        return bool(verdict.node_names) or verdict.reasons != pod.reasons

    async def _tell(self, uid: str, pod: _Rejected) -> None:
        """Annotate the pod. What fails is tried again, after a pause, when something has changed."""
        meta = pod.args.pod.metadata
        pod.told = self._clock()
        status = await self._annotate(meta.namespace, meta.name, uid)
        if status is None:
            pod.version = _NEVER
        elif status in (404, 409):  # gone, or another pod of the same name
            self._rejected.pop(uid, None)

    async def _annotate(self, namespace: str, name: str, uid: str) -> int | None:
        """The API server's status; None where it gave none. It compares the uid."""
        body = {"metadata": {"uid": uid, "annotations": retried_at.encode(self._now())}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        try:
            return (await self._writer.send("PATCH", path, body=body, content_type=MERGE_PATCH)).status
        except (TryLater, NotSent) as error:
            _LOG.warning("%s/%s was not annotated: %s", namespace, name, error)
            return None


def _waits(pod: PodView) -> bool:
    """Whether kube-scheduler has it, and asks us before it can be bound."""
    return pod.ours and pod.gpus > 0 and pod.node is None and not (pod.gates or pod.finished or pod.deleting)


def _slim(args: ExtenderArgs) -> ExtenderArgs:
    """Without what only kube-scheduler looks at, which users can make as long as they like."""
    spec = replace(args.pod.spec, affinity=NULL, node_selector=NULL, tolerations=NULL)
    return ExtenderArgs(replace(args.pod, spec=spec), args.names, None)
