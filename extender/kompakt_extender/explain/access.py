"""Who may be told what: asked before every answer, and again for each namespace that an answer would name."""

from collections.abc import Callable, Collection
from typing import Final

from starlette.requests import Request

from kompakt_client.reviews import READ_METRICS, Caller, Reviews, explaining, token_of
from kompakt_core.contract import JOB_PLURAL, TOPOLOGY_PLURAL
from kompakt_extender.explain.bounded_executor import BoundedExecutor
from kompakt_extender.explain.models import Holder, NodeAnswer, NodePage

NODES: Final = explaining(TOPOLOGY_PLURAL)
EVERYWHERE: Final = explaining(JOB_PLURAL)


class AccessGuard:
    """Asks on threads of its own: the loop is kube-scheduler's. `plain_metrics`: figures are for whoever reaches the port."""

    def __init__(self, reviews: Reviews, *, plain_metrics: bool = False) -> None:
        self._reviews, self._plain_metrics = reviews, plain_metrics
        self._threads, self._sweeps = BoundedExecutor(), BoundedExecutor()  # what asks about many namespaces holds up nobody else

    async def to_nodes(self, request: Request) -> Caller:
        """Whoever may be told of the cluster's nodes; raises AccessRefused."""
        return await self._threads.run(lambda: self._reviews.admit(_token(request), NODES))

    async def to_namespace(self, request: Request, namespace: str) -> Caller:
        """Whoever may be told of that namespace's jobs and pods; raises AccessRefused."""
        return await self._threads.run(lambda: self._reviews.admit(_token(request), explaining(JOB_PLURAL, namespace)))

    async def to_metrics(self, request: Request) -> None:
        """Whoever may read figures; raises AccessRefused."""
        if not self._plain_metrics:
            await self._threads.run(lambda: self._reviews.admit(_token(request), READ_METRICS))

    async def namespaces_of(self, caller: Caller, known: Collection[str]) -> frozenset[str] | None:
        """Those of the known namespaces of whose jobs and pods the caller may be told; None: of all. Raises AccessRefused."""

        def allowed() -> frozenset[str] | None:
            if self._reviews.may(caller, EVERYWHERE):
                return None
            return frozenset(one for one in known if self._reviews.may(caller, explaining(JOB_PLURAL, one)))

        return await self._sweeps.run(allowed)

    def without_strangers(self, answer: NodeAnswer, caller: Caller) -> NodeAnswer:
        """The same without names of pods that the caller may not be told of: their uids remain. It waits, so not on the loop."""
        shown = self._shown_to(caller)
        gpus = [gpu.model_copy(update={"holders": list(map(shown, gpu.holders))}) for gpu in answer.gpu_list]
        return answer.model_copy(update={"gpu_list": gpus})

    def page_without_strangers(self, answer: NodePage, caller: Caller) -> NodePage:
        """As `without_strangers`, for a page of nodes with their holders."""
        shown = self._shown_to(caller)
        items = [one.model_copy(update={"held_by": list(map(shown, one.held_by))}) for one in answer.items]
        return answer.model_copy(update={"items": items})

    def _shown_to(self, caller: Caller) -> Callable[[Holder], Holder]:
        everywhere = self._reviews.may(caller, EVERYWHERE)

        def shown(holder: Holder) -> Holder:
            seen = everywhere or not holder.namespace or self._reviews.may(caller, explaining(JOB_PLURAL, holder.namespace))
            return holder if seen else holder.model_copy(update={"namespace": "", "name": ""})

        return shown


def _token(request: Request) -> str:
    header: Callable[[str], str | None] = request.headers.get
    return token_of(header)
