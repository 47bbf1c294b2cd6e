"""filter and prioritize: read the caches, change nothing, and say the same as long as nothing changes."""

import logging

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName
from kompakt_extender import words
from kompakt_extender.decide import Grant, Request, grant, request_of
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import Ledger
from kompakt_extender.project import pod_view
from kompakt_extender.scores import Boards, encode_scores
from kompakt_extender.views import PodView
from kompakt_extender.wire import ExtenderArgs, FilterResult

_LOG = logging.getLogger(__name__)


class Answers:
    """Answers the two verbs that only look."""

    def __init__(self, ledger: Ledger, jobs: Jobs) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._boards = Boards(ledger)

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Which of the nodes can take the pod now."""
        names = args.node_names or []
        pod = pod_view(args.pod)
        try:
            request = request_of(pod)
        except InvalidInput as error:
            return FilterResult([], failed_and_unresolvable_nodes=dict.fromkeys(names, str(error)))
        if pod.job_uid and not self._jobs.released(pod):
            return FilterResult([], failed_nodes=dict.fromkeys(names, words.WITHDRAWN))
        result = FilterResult([], {}, {})
        for name in names:
            self._sort_in(name, pod, request, result)
        return result

    def _sort_in(self, name: str, pod: PodView, request: Request, result: FilterResult) -> None:
        found = grant(request, self._ledger.state_for(NodeName(name), pod.uid))
        if isinstance(found, Grant):
            result.node_names.append(name)
        elif found.final:
            result.failed_and_unresolvable_nodes[name] = found.text
        else:
            result.failed_nodes[name] = found.text

    def prioritize(self, args: ExtenderArgs) -> bytes:
        """The scores of the nodes, as JSON text."""
        names = args.node_names or []
        try:
            return self._boards.answer(request_of(pod_view(args.pod)), names)
        except InvalidInput as error:  # filter refuses such a pod; an error here would be swallowed
            _LOG.warning("prioritize of %s/%s: %s", args.pod.metadata.namespace, args.pod.metadata.name, error)
            return encode_scores(names, dict.fromkeys(names))
