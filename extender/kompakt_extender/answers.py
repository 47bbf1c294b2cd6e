"""filter and prioritize: read the caches, change nothing, and say the same as long as nothing changes."""

import logging
from typing import Final

from kompakt_core import contract
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Reason, Rejection
from kompakt_extender import node_rules
from kompakt_extender.custom_patterns import WeighedHere, Weights
from kompakt_extender.decide import Grant, Request, request_of
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.objects import Affinity, NodeAffinity, Pod
from kompakt_extender.patterns_in_time import PatternsInTime, free_choice
from kompakt_extender.project import request_view
from kompakt_extender.rejections import FilterVerdict, message_of
from kompakt_extender.scores import Boards
from kompakt_extender.views import PodView
from kompakt_extender.wire import ExtenderArgs

_LOG = logging.getLogger(__name__)
# So many nodes are enough for kube-scheduler to choose among, the best ones by our ranks: by itself it looks no further than
# for the first 100 that fit (minFeasibleNodesToFind in pkg/scheduler/schedule_one.go of Kubernetes 1.37).
ENOUGH: Final = 100
_NOT_PLANNED: Final = Rejection(Reason.NOT_PLANNED)
_WITHDRAWN: Final = Rejection(Reason.WITHDRAWN)


class Answers:
    """Answers the two verbs that only look."""

    def __init__(self, ledger: GpuLedger, jobs: Jobs, weights: Weights | None = None, resource: str = contract.RESOURCE) -> None:
        """`weights` None: custom edges are weighed here, however long that takes. `resource`: by which name pods ask for GPUs."""
        weights, self._resource = weights or WeighedHere(), resource
        self._ledger = ledger
        self._jobs = jobs
        self.boards = Boards(ledger, weights)
        self.patterns = PatternsInTime(ledger, self.boards, weights)
        self._last: tuple[Pod, tuple[PodView, Request | Rejection]] | None = None

    def _asked(self, pod: Pod) -> tuple[PodView, Request | Rejection]:
        """The pod and what it asks for. prioritize mostly follows filter, with the very same pod."""
        if self._last is None or self._last[0] is not pod:
            self._last = pod, _read(pod, self._resource)
        return self._last[1]

    @property
    def version(self) -> tuple[int, int]:
        """Changes with all that an answer depends on."""
        return self._ledger.version, self._jobs.limits.version

    async def prepare(self, args: ExtenderArgs) -> None:
        """To be called before filter: custom edges are weighed elsewhere, and may take a while."""
        pod, request = self._asked(args.pod)
        if isinstance(request, Rejection) or not request.gpu_request.edges or self._jobs.limits.beyond_pod(pod):
            return
        if not pod.job_uid or self._jobs.released(pod):
            await self.patterns.prepare(pod, request, args.names)

    def filter(self, args: ExtenderArgs) -> FilterVerdict:
        """Which of the nodes can take the pod now."""
        names = args.names
        pod, request = self._asked(args.pod)
        if isinstance(request, Rejection):
            return FilterVerdict([], dict.fromkeys(names, request))
        request = self.patterns.placed_as(pod, request)
        if more := self._jobs.limits.beyond_pod(pod):
            return FilterVerdict([], dict.fromkeys(names, Rejection(Reason.BEYOND_LIMITS, detail=more)))
        if pod.job_uid and not self._jobs.released(pod):
            return FilterVerdict([], dict.fromkeys(names, _WITHDRAWN))
        if request.planned_node and request.minimum is None:
            return self._only_planned(pod, request, names)
        # The board answers for pods without a plan; the planned node alone is looked at with the pod's own GPUs free.
        board = self.boards.get(free_choice(request))
        fit, refused = board.verdicts(names)
        if request.planned_node and request.planned_node in names:
            refused.pop(request.planned_node, None)
            if isinstance(found := self._planned(pod, request), Rejection):
                refused[request.planned_node] = found
            fit = [name for name in names if name not in refused]
        if len(fit) > ENOUGH and not has_preferences(args.pod):
            fit = board.best(fit, ENOUGH, first=request.planned_node)
        return FilterVerdict(fit, refused)

    def _only_planned(self, pod: PodView, request: Request, names: list[str]) -> FilterVerdict:
        """A pod of a larger gang: its planned node or none."""
        others = dict.fromkeys(names, _NOT_PLANNED)
        if others.pop(request.planned_node, None) is None:
            return FilterVerdict([], others)
        found = self._planned(pod, request)
        if isinstance(found, Grant):
            # Nobody asks why a pod that has its node cannot go elsewhere; thousands of reasons take kube-scheduler milliseconds.
            told = others if len(others) <= ENOUGH else {}
            return FilterVerdict([request.planned_node], told)
        return FilterVerdict([], {request.planned_node: found, **others})

    def _planned(self, pod: PodView, request: Request) -> Grant | Rejection:
        return self.patterns.grant(request, self._ledger.state_for(NodeName(request.planned_node), pod.uid))[1]

    def prioritize(self, args: ExtenderArgs) -> bytes:
        """The scores of the nodes, as JSON text."""
        names = args.names
        pod, request = self._asked(args.pod)
        if isinstance(request, Rejection):  # filter refuses such a pod; an error here would be swallowed
            _LOG.warning("prioritize of %s/%s: %s", pod.namespace, pod.name, message_of(request))
            return b"[]"
        request = self.patterns.placed_as(pod, request)
        return self.boards.answer(request, names, self._planned(pod, request) if request.planned_node else None)


def has_preferences(pod: Pod) -> bool:
    """Whether some nodes and not others meet the pod's own preferences, which kube-scheduler scores."""
    affinity = node_rules.affinity_of(pod.spec) or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    return bool(pod.spec.topology_spread_constraints or affinity.pod_affinity or affinity.pod_anti_affinity or nodes.preferred)


def _read(pod: Pod, resource: str) -> tuple[PodView, Request | Rejection]:
    view = request_view(pod, resource)
    return view, request_of(view)
