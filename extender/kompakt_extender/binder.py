"""bind: choose the GPUs, claim them, and write node and GPUs with one Binding.

Outcomes of the write: 201 = held. 404 or 409 = read the pod and believe it. No answer or 5xx = unknown: the claim stays
until the pod is seen bound, gone or replaced; no claim ends by time alone.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from kompakt_client.errors import ApiError
from kompakt_client.requests import Answer
from kompakt_core import contract
from kompakt_core.contract import bound_gpus
from kompakt_core.contract.bound_gpus import BoundGpus
from kompakt_core.errors import InvalidInput, TryLater
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.placement.model import NodeState, Reason, Rejection
from kompakt_extender.clock import utc_now
from kompakt_extender.decide import Grant, Request, request_of
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.node_state import Claim, ClaimSource
from kompakt_extender.objects import Pod
from kompakt_extender.patterns_in_time import PatternsInTime
from kompakt_extender.pod_events import PodEvents
from kompakt_extender.project import pod_view
from kompakt_extender.views import PodView
from kompakt_extender.wire import BindingArgs
from kompakt_extender.writer import NotSent, Pause, Sender

_LOG = logging.getLogger(__name__)
PLUGIN_SECONDS = 2.0  # how long a bind waits for the device plugin to report the one before it
_SURELY_NOT_DONE = (401, 429)  # who we are was not believed, or the server had too much to do


class BindRejected(Exception):
    """The pod is not bound by this call."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason.value)
        self.rejection = rejection


class _SurelyNot(BindRejected):
    """This call's Binding was not written and never will be."""


def _not_noted(pod: PodView, request: Request, state: NodeState, found: Grant) -> None:
    """Nobody asks why."""


class Binder:
    """Binds one pod at a time per pod; decisions and reservations happen without a pause in between, on one thread."""

    def __init__(
        self,
        writer: Sender,
        ledger: GpuLedger,
        metrics: ExtenderMetrics,
        released: Callable[[PodView], bool],
        patterns: PatternsInTime,
        *,
        pause: Pause = asyncio.sleep,
        plugin_seconds: float = PLUGIN_SECONDS,
        now: Callable[[], datetime] = utc_now,
        note: Callable[[PodView, Request, NodeState, Grant], None] = _not_noted,
        resource: str = contract.RESOURCE,
    ) -> None:
        """`resource`: by which name pods ask for GPUs."""
        self._resource = resource
        self._writer = writer
        self._ledger = ledger
        self._metrics = metrics
        self._released = released
        self._patterns = patterns
        self._events = PodEvents(writer)
        self._now = now
        self._note = note
        self._pause = pause
        self.plugin_seconds = plugin_seconds
        self._locks: dict[str, asyncio.Lock] = {}
        self._calls: Counter[str] = Counter()
        self._background: set[asyncio.Task[None]] = set()

    async def bind(self, args: BindingArgs) -> Rejection | None:
        """Answer one bind call; None: bound."""
        lock = self._locks.setdefault(args.uid, asyncio.Lock())
        self._calls[args.uid] += 1
        try:
            async with lock:
                await self._bind(args)
        except BindRejected as rejected:
            return rejected.rejection
        except InvalidInput as error:
            return Rejection(Reason.INVALID_REQUEST, detail=str(error))
        except (NotSent, TryLater) as error:
            return Rejection(Reason.NOT_SENT, detail=str(error))
        finally:
            self._calls[args.uid] -= 1
            if not self._calls[args.uid]:  # a lock that is free may still have waiters
                del self._calls[args.uid], self._locks[args.uid]
        return None

    async def _bind(self, args: BindingArgs) -> None:
        pod = self._ledger.pods.get(PodUid(args.uid))
        if pod is None or not self._up_to_date(pod):
            pod = await self._read(args)
        node = NodeName(args.node)
        if pod.node is not None:
            self._already(pod, node)
            return
        if not self._up_to_date(pod):
            raise BindRejected(Rejection(Reason.WITHDRAWN))
        await self._wait_for_plugin(node, pod)
        request = self._request(pod)
        await self._patterns.prepare_bind(pod, request, node)
        sent_before = self._claimed(pod, node)
        by, found = self._claim(pod, node, sent_before)
        try:
            await self._post(args, pod, node, found)
        except _SurelyNot:
            if sent_before is None:  # else an earlier bind of the same set may still arrive
                self._ledger.drop_claim(pod.uid, ClaimSource.BIND, node)
            raise
        if request.gpu_request.edges and not by.gpu_request.edges and by.planned_node != node:
            self._in_background(self._told(pod), f"told-{pod.uid}")

    def _up_to_date(self, pod: PodView) -> bool:
        """A plain pod, or one whose plan stands. kube-scheduler may see a new plan on a pod before our own watch does."""
        return not pod.job_uid or self._released(pod)

    def _already(self, pod: PodView, node: NodeName) -> None:
        if pod.node != node:
            raise BindRejected(Rejection(Reason.BOUND_ELSEWHERE, detail=pod.node or ""))

    def _claimed(self, pod: PodView, node: NodeName) -> Claim | None:
        return next((claim for claim in self._ledger.claims_of(pod.uid, ClaimSource.BIND) if claim.node == node), None)

    def _claim(self, pod: PodView, node: NodeName, sent_before: Claim | None) -> tuple[Request, Grant]:
        """Choose and take the GPUs, and by what request; nothing else runs between looking and taking. A bind sent again names
        the same GPUs.
        """
        if not self._up_to_date(pod):
            raise BindRejected(Rejection(Reason.WITHDRAWN))
        request = self._patterns.placed_as(pod, self._request(pod))
        if sent_before is not None:
            request = replace(request, planned_node=node, planned=sent_before.gpus)
        state = self._ledger.state_for(node, pod.uid)
        request, found = self._patterns.grant(request, state)
        if isinstance(found, Rejection):
            raise BindRejected(found)
        if state is not None and sent_before is None:
            self._note(pod, request, state, found)
        self._ledger.claim(ClaimSource.BIND, pod, node, found.uuids)
        return request, found

    def _request(self, pod: PodView) -> Request:
        request = request_of(pod)
        if isinstance(request, Rejection):
            raise BindRejected(request)
        return request

    async def _wait_for_plugin(self, node: NodeName, pod: PodView) -> None:
        """Of one size, at most one bind per node is unreported by the device plugin: it tells equal requests apart by order."""
        try:
            async with asyncio.timeout(self.plugin_seconds):
                while self._ledger.unreported(node, pod.gpus, pod.uid):
                    await self._ledger.next_change(node).wait()
        except TimeoutError:
            raise BindRejected(Rejection(Reason.PLUGIN_BEHIND)) from None

    async def _post(self, args: BindingArgs, pod: PodView, node: NodeName, found: Grant) -> None:
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}/binding"
        try:
            answer = await self._writer.send("POST", path, body=binding(args, found))
        except TryLater as error:
            if isinstance(error, ApiError) and error.status in _SURELY_NOT_DONE:
                self._metrics.binds.labels("refused").inc()
                raise _SurelyNot(Rejection(Reason.BINDING_REFUSED, detail=error.message)) from error
            self._metrics.binds.labels("unknown").inc()
            self._settle(args, pod)
            raise BindRejected(Rejection(Reason.OUTCOME_UNKNOWN, detail=str(error))) from error
        except NotSent as error:
            raise _SurelyNot(Rejection(Reason.NOT_SENT, detail=str(error))) from error
        if answer.ok:
            self._metrics.binds.labels("bound").inc()
            _LOG.info("bound %s/%s to %s with GPUs %s", args.namespace, args.name, node, ",".join(map(str, found.order)))
            return
        await self._believe(args, pod, node, answer)

    async def _believe(self, args: BindingArgs, pod: PodView, node: NodeName, answer: Answer) -> None:
        """The API server refused: what the pod itself says decides."""
        self._metrics.binds.labels("refused").inc()
        if answer.status in (404, 409):
            now = await self._read_or_settle(args, pod)
            if now.node is not None:
                self._ledger.set_pod(now)
                return self._already(now, node)
        raise _SurelyNot(Rejection(Reason.BINDING_REFUSED, detail=answer.message))

    async def _read_or_settle(self, args: BindingArgs, pod: PodView) -> PodView:
        try:
            return await self._read(args)
        except (TryLater, NotSent) as error:
            self._settle(args, pod)
            raise BindRejected(Rejection(Reason.POD_UNREADABLE, detail=str(error))) from error
        except BindRejected:
            self._ledger.remove_pod(pod.uid)
            raise

    async def _read(self, args: BindingArgs) -> PodView:
        """The pod as it is now. Raises BindRejected when it is gone or replaced, TryLater when nobody can say."""
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}"
        answer = await self._writer.send("GET", path)
        if answer.status == 404:
            raise BindRejected(Rejection(Reason.POD_GONE))
        if not answer.ok:
            raise TryLater(answer.message, 1.0)
        pod = pod_view(msgspec.json.decode(answer.body, type=Pod), self._resource)
        if pod.uid != args.uid:
            raise BindRejected(Rejection(Reason.POD_REPLACED))
        return pod

    def _settle(self, args: BindingArgs, pod: PodView) -> None:
        """Find out in the background what became of a bind; the watch usually tells first."""
        if any(task.get_name() == pod.uid for task in self._background):
            return
        self._in_background(self._read_until_known(args, pod), pod.uid)

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _told(self, pod: PodView) -> None:
        await self._events.placed_without_pattern(pod, self._now().timestamp())

    async def _read_until_known(self, args: BindingArgs, pod: PodView) -> None:
        pause = 0.5
        while self._ledger.claims_of(pod.uid, ClaimSource.BIND):
            try:
                now = await self._read(args)
            except BindRejected:
                self._ledger.remove_pod(pod.uid)
                return
            except NotSent:
                pass  # the Lease is nobody's now
            except TryLater as error:
                _LOG.warning("outcome of binding %s/%s still unknown: %s", args.namespace, args.name, error)
            else:
                if now.node is not None:
                    self._ledger.set_pod(now)
                    return
            await self._pause(pause)
            pause = min(pause * 2, 10.0)

    def stop(self) -> None:
        """End what runs in the background."""
        for task in self._background:
            task.cancel()


def binding(args: BindingArgs, found: Grant) -> dict[str, Any]:
    """The Binding: its uid guards against another pod of the same name, its annotations land on the pod in the same write."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": args.name,
            "namespace": args.namespace,
            "uid": args.uid,
            "annotations": bound_gpus.encode(BoundGpus(found.uuids, found.order, found.value)),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
    }
