"""How pods got their places: noted at bind, kept for the explain API, lost with the process."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import msgspec

from kompakt_core.ids import GpuIndex, GpuMask, NodeName, PodUid
from kompakt_core.placement.fit import node_rejection
from kompakt_core.placement.gang_placement import ideal_value
from kompakt_core.placement.model import NodeState, Snapshot
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender.custom_patterns import WeighedHere, Weights
from kompakt_extender.decide import Grant, Request, Weight, without_plan
from kompakt_extender.gangs import worker_of
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.scores import Board
from kompakt_extender.views import PodView

LIMIT: Final = 20_000  # about 8 MB; the oldest make room
_LOOKED_AT: Final = 16  # nodes that are tried as second best, best first
_KINDS_SECONDS: Final = 30  # how old the list of kinds of machines may be; all nodes are gone through for it


class Second(msgspec.Struct, frozen=True, gc=False):
    """The node that ranked next, and what it would have given."""

    node: NodeName
    order: tuple[GpuIndex, ...]
    value: int


class PlacementRecord(msgspec.Struct, frozen=True, gc=False):
    """One choice with all that is needed to explain it later. `free`: GPUs of the node that the pod could choose from."""

    at: datetime
    node: NodeName
    graph: LinkGraph
    free: GpuMask
    request: Request
    order: tuple[GpuIndex, ...]
    value: int
    second: Second | None
    compared: bool  # whether other nodes were looked at


class PlacementHistory:
    """The last choices, by pod."""

    def __init__(
        self,
        ledger: GpuLedger,
        now: Callable[[], datetime],
        board_of: Callable[[Request], Board | None],
        metrics: ExtenderMetrics,
        weights: Weights | None = None,
    ) -> None:
        self._weights = weights or WeighedHere()
        self._ledger = ledger
        self._now = now
        self._board_of = board_of
        self._metrics = metrics
        self._noted: dict[PodUid, PlacementRecord] = {}
        self._kinds = Snapshot({})
        self._kinds_until: datetime | None = None

    def note(self, pod: PodView, request: Request, state: NodeState, found: Grant) -> None:
        """Remember and count a choice; called at bind, before the GPUs count as taken."""
        if state.graph is None:
            return
        now, board = self._now(), self._board(request)
        second = self._second(pod, board, request, state.name) if board else None
        self._noted.pop(pod.uid, None)
        self._noted[pod.uid] = PlacementRecord(
            now, state.name, state.graph, state.free, request, found.order, found.value, second, board is not None
        )
        if len(self._noted) > LIMIT:
            del self._noted[next(iter(self._noted))]
        if ideal := self._ideal(now, board, request):
            self._metrics.value_shares.labels(request.gpu_request.pattern.value).observe(found.value / ideal)

    def of(self, uid: PodUid) -> PlacementRecord | None:
        """What was noted of a pod."""
        return self._noted.get(uid)

    def _ideal(self, now: datetime, board: Board | None, request: Request) -> int:
        """MB/s; 0 where nobody can tell. Custom edges are weighed nowhere but where filter has had it done."""
        if request.gpu_request.edges:
            return board.ideal.value if board else 0
        return ideal_value(self._kinds_at(now), request.gpus, request.gpu_request)

    def _kinds_at(self, now: datetime) -> Snapshot:
        """One node of each kind of machine."""
        if self._kinds_until is None or now >= self._kinds_until:
            states = self._ledger.snapshot().nodes.values()
            kinds = {state.graph.digest: state for state in states if state.graph is not None}
            self._kinds = Snapshot({state.name: state for state in kinds.values()})
            self._kinds_until = now + timedelta(seconds=_KINDS_SECONDS)
        return self._kinds

    def _board(self, request: Request) -> Board | None:
        """What prioritize compared for a pod that had a choice: one without a plan, or a gang of one."""
        had_choice = not request.planned_node or request.minimum is not None
        return self._board_of(without_plan(request)) if had_choice else None

    def _second(self, pod: PodView, board: Board, request: Request, chosen: NodeName) -> Second | None:
        """The next best node that Kubernetes allows for the pod, as far as the caches know its rules."""
        free_choice = without_plan(request)
        others = (name for name in board.by_rank() if name != chosen)
        for name in islice(others, _LOOKED_AT):
            state = self._ledger.state(NodeName(name))
            if state is None or node_rejection(state, worker_of(pod), None) is not None:
                continue
            found = self._weights.weight(free_choice, state, False)
            if isinstance(found, Weight):
                return Second(state.name, found.order, found.value)
        return None
