"""bind: choose the GPUs, reserve them, and write node and GPUs with one Binding.

Outcomes of the write: 201 = held. 404 or 409 = read the pod and believe it. No answer or 5xx = unknown: the reservation stays
until the pod is seen bound, gone or replaced; no reservation ends by time alone.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from kompakt_client.requests import Answer
from kompakt_core import contract
from kompakt_core.errors import InvalidInput, TryLater
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.placement.model import NodeState
from kompakt_extender import words
from kompakt_extender.decide import Grant, No, Request, grant, request_of
from kompakt_extender.ledger import Claim, Ledger, Source
from kompakt_extender.metrics import Metrics
from kompakt_extender.objects import Pod
from kompakt_extender.project import pod_view
from kompakt_extender.views import PodView
from kompakt_extender.wire import BindingArgs, BindingResult
from kompakt_extender.writer import NotSent, Pause, Sender

_LOG = logging.getLogger(__name__)
PLUGIN_SECONDS = 2.0  # how long a bind waits for the device plugin to report the one before it
_STEP = 0.01


class Refused(Exception):
    """The pod is not bound by this call; the text goes to kube-scheduler."""


class _SurelyNot(Refused):
    """This call's Binding was not written and never will be."""


def _not_noted(pod: PodView, request: Request, state: NodeState, found: Grant) -> None:
    """Nobody asks why."""


class Binder:
    """Binds one pod at a time per pod; decisions and reservations happen without a pause in between, on one thread."""

    def __init__(
        self,
        writer: Sender,
        ledger: Ledger,
        metrics: Metrics,
        released: Callable[[PodView], bool],
        *,
        pause: Pause = asyncio.sleep,
        note: Callable[[PodView, Request, NodeState, Grant], None] = _not_noted,
    ) -> None:
        self._writer = writer
        self._ledger = ledger
        self._metrics = metrics
        self._released = released
        self._note = note
        self._pause = pause
        self._locks: dict[str, asyncio.Lock] = {}
        self._calls: Counter[str] = Counter()
        self._settling: set[asyncio.Task[None]] = set()

    async def bind(self, args: BindingArgs) -> BindingResult:
        """Answer one bind call."""
        lock = self._locks.setdefault(args.uid, asyncio.Lock())
        self._calls[args.uid] += 1
        try:
            async with lock:
                await self._bind(args)
        except (Refused, InvalidInput, NotSent, TryLater) as error:
            return BindingResult(str(error))
        finally:
            self._metrics.unknown_binds.set(self._ledger.unknown_binds)
            self._calls[args.uid] -= 1
            if not self._calls[args.uid]:  # a lock that is free may still have waiters
                del self._calls[args.uid], self._locks[args.uid]
        return BindingResult()

    async def _bind(self, args: BindingArgs) -> None:
        pod = self._ledger.pods.get(PodUid(args.uid))
        if pod is None or not self._up_to_date(pod):
            pod = await self._read(args)
        node = NodeName(args.node)
        if pod.node is not None:
            return self._already(pod, node)
        if not self._up_to_date(pod):
            raise Refused(words.WITHDRAWN)
        await self._wait_for_plugin(node, pod)
        sent_before = self._reserved(pod, node)
        found = self._reserve(pod, node, sent_before)
        try:
            await self._post(args, pod, node, found)
        except _SurelyNot:
            if sent_before is None:  # else an earlier bind of the same set may still arrive
                self._ledger.drop_claim(pod.uid, Source.BIND, node)
            raise

    def _up_to_date(self, pod: PodView) -> bool:
        """A plain pod, or one whose plan stands. kube-scheduler may see a new plan on a pod before our own watch does."""
        return not pod.job_uid or self._released(pod)

    def _already(self, pod: PodView, node: NodeName) -> None:
        if pod.node != node:
            raise Refused(f"the pod is bound to {pod.node} already")

    def _reserved(self, pod: PodView, node: NodeName) -> Claim | None:
        return next((claim for claim in self._ledger.claims_of(pod.uid, Source.BIND) if claim.node == node), None)

    def _reserve(self, pod: PodView, node: NodeName, sent_before: Claim | None) -> Grant:
        """Choose and take the GPUs; nothing else runs between looking and taking. A bind sent again names the same GPUs."""
        if not self._up_to_date(pod):
            raise Refused(words.WITHDRAWN)
        request = request_of(pod)
        if sent_before is not None:
            request = replace(request, planned_node=node, planned=sent_before.gpus)
        state = self._ledger.state_for(node, pod.uid)
        found = grant(request, state)
        if isinstance(found, No):
            raise Refused(found.text)
        if state is not None and sent_before is None:
            self._note(pod, request, state, found)
        self._ledger.claim(Source.BIND, pod, node, found.uuids)
        self._metrics.unknown_binds.set(self._ledger.unknown_binds)
        return found

    async def _wait_for_plugin(self, node: NodeName, pod: PodView) -> None:
        """Of one size, at most one bind per node is unreported by the device plugin: it tells equal requests apart by order."""
        for _ in range(round(PLUGIN_SECONDS / _STEP)):
            if not self._ledger.unreported(node, pod.gpus, pod.uid):
                return
            await self._pause(_STEP)
        if self._ledger.unreported(node, pod.gpus, pod.uid):
            raise Refused("the node's device plugin has not reported an earlier pod of the same size yet")

    async def _post(self, args: BindingArgs, pod: PodView, node: NodeName, found: Grant) -> None:
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}/binding"
        try:
            answer = await self._writer.send("POST", path, body=binding(args, found))
        except TryLater as error:
            self._metrics.binds.labels("unknown").inc()
            self._settle(args, pod)
            raise Refused(f"bind sent, outcome not known yet: {error}") from error
        except NotSent as error:
            raise _SurelyNot(str(error)) from error
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
        raise _SurelyNot(f"the API server refused the binding: {answer.message}")

    async def _read_or_settle(self, args: BindingArgs, pod: PodView) -> PodView:
        try:
            return await self._read(args)
        except (TryLater, NotSent) as error:
            self._settle(args, pod)
            raise Refused(f"bind refused, and the pod could not be read: {error}") from error
        except Refused:
            self._ledger.remove_pod(pod.uid)
            raise

    async def _read(self, args: BindingArgs) -> PodView:
        """The pod as it is now. Raises Refused when it is gone or replaced, TryLater when nobody can say."""
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}"
        answer = await self._writer.send("GET", path)
        if answer.status == 404:
            raise Refused("the pod is gone")
        if not answer.ok:
            raise TryLater(answer.message, 1.0)
        pod = pod_view(msgspec.json.decode(answer.body, type=Pod))
        if pod.uid != args.uid:
            raise Refused("the pod was replaced by another one of the same name")
        return pod

    def _settle(self, args: BindingArgs, pod: PodView) -> None:
        """Find out in the background what became of a bind; the watch usually tells first."""
        if any(task.get_name() == pod.uid for task in self._settling):
            return
        task = asyncio.create_task(self._read_until_known(args, pod), name=pod.uid)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _read_until_known(self, args: BindingArgs, pod: PodView) -> None:
        pause = 0.5
        while self._ledger.claims_of(pod.uid, Source.BIND):
            try:
                now = await self._read(args)
            except Refused:
                self._ledger.remove_pod(pod.uid)
                return
            except NotSent:
                return  # whoever decides now finds out by itself
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
        for task in self._settling:
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
            "annotations": {
                contract.ANN_GPUS: ",".join(found.uuids),
                contract.ANN_GPU_INDICES: ",".join(map(str, found.order)),
                contract.ANN_VALUE: str(found.value),
            },
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
    }
