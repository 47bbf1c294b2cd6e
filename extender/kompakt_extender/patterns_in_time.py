"""By what pattern each pod gets its place: by the one that it asks for, or by None where its custom edges take too long."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState, Rejection
from kompakt_extender.custom_patterns import REQUEST_SECONDS, Weights
from kompakt_extender.decide import Grant, Request, grant, without_pattern
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.scores import Board, Boards
from kompakt_extender.views import PodView

MOST_PODS: Final = 4096  # whose edges took too long; of more than that the first are forgotten, and get what is known by then


class PatternsInTime:
    """Asked before and by the verbs. What filter said holds until it is asked about the pod again."""

    def __init__(self, ledger: GpuLedger, boards: Boards, weights: Weights, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._boards = boards
        self._weights = weights
        self._clock = clock
        self._patternless: dict[str, None] = {}  # uids of pods

    async def prepare(self, pod: PodView, request: Request, names: list[str]) -> None:
        """Before filter: have the pod's custom edges weighed on nodes of each kind, for as long as they may take. If no node that
        was weighed can take the pod by then, it is placed as if it had asked for pattern None.
        """
        self._patternless.pop(pod.uid, None)
        if request.gpu_request.edges and not await self._weighed(pod, request, names):
            self._patternless[pod.uid] = None
            if len(self._patternless) > MOST_PODS:
                del self._patternless[next(iter(self._patternless))]

    async def prepare_bind(self, pod: PodView, request: Request, node: NodeName) -> None:
        """Before bind: the same on the one node; it may have changed since filter."""
        request = self.placed_as(pod, request)
        state = self._ledger.state_for(node, pod.uid)
        if request.gpu_request.edges and state is not None:
            await self._weights.weigh(pod.namespace, request, [(state, False)], self._clock() + REQUEST_SECONDS)

    def placed_as(self, pod: PodView, request: Request) -> Request:
        """The request, as filter has left it."""
        return without_pattern(request) if pod.uid in self._patternless else request

    def grant(self, request: Request, state: NodeState | None) -> tuple[Request, Grant | Rejection]:
        """As decide.grant, and by what request: without a pattern where the node was not weighed in time."""
        if state is None or state.graph is None:
            return request, grant(request, state)
        found = self._weights.weight(request, state, False)
        if found is None:
            request = without_pattern(request)
            return request, grant(request, state)
        return request, found if isinstance(found, Rejection) else found.on(state.graph)

    async def _weighed(self, pod: PodView, request: Request, names: list[str]) -> bool:
        """False where pattern None is the way to an answer."""
        until = self._clock() + REQUEST_SECONDS
        if request.planned_node:
            state = self._ledger.state_for(NodeName(request.planned_node), pod.uid)
            if state is not None:
                await self._weights.weigh(pod.namespace, request, [(state, False)], until)
            if request.minimum is None:
                return True  # its GPUs are chosen; only what they are worth may be unknown
        if self._weights.exhausted(pod.namespace):
            return False
        board = self._board(pod, request)
        while missing := board.unweighed(names):
            if not await self._weights.weigh(pod.namespace, board.request, missing, until):
                break
        await self._weights.weigh(pod.namespace, board.ideal.request, board.ideal.machines, until)
        return bool(board.verdicts(names)[0]) or not board.unweighed(names)

    def _board(self, pod: PodView, request: Request) -> Board:
        """The nodes as they are. That is paid for, too: a set of edges that nobody has asked for takes milliseconds here."""
        began = self._clock()
        board = self._boards.get(free_choice(request))
        board.unweighed(())
        self._weights.spend(pod.namespace, self._clock() - began)
        return board


def free_choice(request: Request) -> Request:
    """What it asks of any node but the planned one."""
    return replace(request, planned_node="", planned=())
