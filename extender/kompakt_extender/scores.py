"""filter and prioritize from per-node results that are kept until a node changes.

Nodes with score 0 are left out of prioritize's answer: kube-scheduler adds what is in it to its own scores, and nothing to
those of other nodes (pkg/scheduler/schedule_one.go, prioritizeNodes). Mostly all empty nodes have 0.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState, PlacementPolicy, Reason, Rejection
from kompakt_core.topology.graph import LinkGraph, SharedGraph
from kompakt_extender.custom_patterns import WeighedHere, WeightKey, Weights, weight_key
from kompakt_extender.decide import Grant, Request, Weight, without_plan
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.wire import encode_text

TOP = 10  # extender/v1 MaxExtenderPriority
Rank = tuple[int, ...]
_UNFIT = -1  # class of nodes that cannot take the pod
_NOWHERE = -2  # class of a node before it is seen
_UNKNOWN = Rejection(Reason.UNKNOWN_NODE)
_UNWEIGHED = Rejection(Reason.NOT_WEIGHED)
_TAILS = tuple(b"%d}" % score for score in range(TOP + 1))


def scores_of(ranks: Iterable[Rank], *, ideal: bool) -> dict[Rank, int]:
    """From ranks to numbers over the whole range: the best rank gets 10 if it is `ideal`, else 9; the worst of several 0.

    The best one stands alone at its number: kube-scheduler chooses at random among equals.
    """
    ordered = sorted(set(ranks), reverse=True)
    best, last = TOP if ideal else TOP - 1, len(ordered) - 1
    return {rank: best * (last - place) // last if last else best for place, rank in enumerate(ordered)}


class Board:
    """What every node is worth to one kind of request. Only nodes that changed since the last call are looked at again.

    Nodes of equal rank and value form a class; classes are numbered in the order they turn up, because 5,000 small integers are
    compared much faster than 5,000 tuples. `_lines` holds the finished JSON text, for the scores given last, of each node with
    more than 0.
    """

    def __init__(self, ledger: GpuLedger, request: Request, weights: Weights | None = None) -> None:
        self._ledger = ledger
        self._from = weights or WeighedHere()
        self.request = request
        self.ideal = Ideal(request, self._from)
        self.changed = ledger.subscribe()
        self._class: dict[str, int] = {}
        self._members: defaultdict[int, set[str]] = defaultdict(set)
        self._numbers: dict[tuple[Rank, int], int] = {}
        self._kinds: list[tuple[Rank, int]] = []  # class number -> rank and value
        self._scores: Mapping[int, int] = {}
        self._heads: dict[str, bytes] = {}
        self._lines: dict[str, bytes] = {}
        self._fits: set[str] = set()
        self._rejections: dict[str, Rejection] = {}
        self._weights: dict[WeightKey, tuple[int, Rejection | None]] = {}
        self._unweighed: dict[WeightKey, dict[str, None]] = {}  # nodes whose weight is not known, by what it depends on
        self._unweighed_as: dict[str, WeightKey] = {}

    def verdicts(self, names: list[str]) -> tuple[list[str], dict[str, Rejection]]:
        """The nodes that can take the pod (the same list, if all can), and why each other one cannot."""
        self._refresh()
        if self._fits.issuperset(names):
            return names, {}
        refused = {name: self._rejections.get(name, _UNKNOWN) for name in names if name not in self._fits}
        return [name for name in names if name not in refused], refused

    def unweighed(self, names: Iterable[str]) -> list[tuple[NodeState, bool]]:
        """Nodes that stand for all of these whose weight is not known, the ones that stand for most first."""
        self._refresh()
        asked = frozenset(names) if self._unweighed else frozenset()
        groups = [[name for name in group if name in asked] for group in self._unweighed.values()]
        states = [self._ledger.state(NodeName(group[0])) for group in sorted(groups, key=len, reverse=True) if group]
        return [(state, self._waits(state)) for state in states if state is not None]

    def _waits(self, state: NodeState) -> bool:
        return self._ledger.unreported(state.name, self.request.gpus)

    def by_rank(self) -> Iterator[str]:
        """The nodes that can take the pod, best first. Equals come in no particular order."""
        self._refresh()
        fit = (number for number, members in self._members.items() if members and number != _UNFIT)
        for number in sorted(fit, key=lambda number: self._kinds[number][0], reverse=True):
            yield from self._members[number]

    def best(self, fit: Sequence[str], enough: int, *, first: str = "") -> list[str]:
        """The best `enough` of nodes that can all take the pod; `first` before all others, if it is among them."""
        asked = frozenset(fit)
        head = [first] if first in asked else []
        return [*head, *islice((name for name in self.by_rank() if name in asked and name != first), enough - len(head))]

    def answer(self, names: Sequence[str]) -> bytes:
        """The HostPriorityList of these nodes as JSON text; a node that is not known or cannot take the pod has 0."""
        self._refresh()
        self._score(self._classes(names))
        return _list(filter(None, map(self._lines.get, names)))

    def answer_behind(self, names: Sequence[str], first: str, value: int) -> bytes:
        """The same with one node before all others, on which the pod would get this value."""
        self._refresh()
        known = {self._class[name] for name in names if name in self._class and name != first}
        points = self._points(known, [value] if first in names else [])
        best = points.pop(_NOWHERE, 0)
        scored = ((name, best if name == first else points.get(self._class.get(name, _UNFIT), 0)) for name in names)
        return _list(self._head(name) + _TAILS[score] for name, score in scored if score)

    def _classes(self, names: Sequence[str]) -> Iterable[int]:
        """The classes among these nodes. Asked for as many as fit, they are taken to be those: no look at each is needed."""
        if len(names) == len(self._fits):
            return [number for number, members in self._members.items() if members]
        return {self._class.get(name, _UNFIT) for name in names}

    def _points(self, classes: Iterable[int], first: Sequence[int] = ()) -> dict[int, int]:
        """Scores by class. `first`: the value on a node before all others, which is put under _NOWHERE."""
        fitting = [number for number in classes if number != _UNFIT]
        ranks = {number: (0, *self._kinds[number][0]) for number in fitting} | dict.fromkeys([_NOWHERE] * len(first), (1,))
        best = max(ranks.values(), default=())
        values = first or [self._kinds[number][1] for number, rank in ranks.items() if rank == best]
        scores = scores_of(ranks.values(), ideal=min(values, default=0) >= self.ideal.value)
        return {number: scores[rank] for number, rank in ranks.items()}

    def _score(self, classes: Iterable[int]) -> None:
        before, self._scores = self._scores, self._points(classes)
        for number in before.keys() | self._scores.keys():
            score = self._scores.get(number, 0)
            if score != before.get(number, 0):
                for name in self._members[number]:
                    self._write(name, score)

    def _write(self, name: str, score: int) -> None:
        if score:
            self._lines[name] = self._head(name) + _TAILS[score]
        else:
            self._lines.pop(name, None)

    def _refresh(self) -> None:
        for name in (*self.changed, *self._weighed_since()):
            self.changed.discard(name)
            self._forget(name)
            state = self._ledger.state(name)
            self.ideal.see(name, None if state is None else state.graph)
            if state is not None:
                self._see(name, *self._weigh(state))
        self.changed.clear()  # a set that once was large is slow to look through, empty or not, until it is cleared

    def _weighed_since(self) -> list[NodeName]:
        """Nodes whose weight was not known when it was last asked for, and is now; they are looked at anew."""
        known = [key for key, group in self._unweighed.items() if self._is_known(next(iter(group)))]
        return [NodeName(name) for key in known for name in self._unweighed[key]]

    def _is_known(self, name: str) -> bool:
        state = self._ledger.state(NodeName(name))
        return state is None or self._from.weight(self.request, state, self._waits(state)) is not None

    def _forget(self, name: str) -> None:
        self._members[self._class.pop(name, _NOWHERE)].discard(name)
        self._lines.pop(name, None)
        self._rejections.pop(name, None)
        self._fits.discard(name)
        if (key := self._unweighed_as.pop(name, None)) is not None:
            del self._unweighed[key][name]
            if not self._unweighed[key]:
                del self._unweighed[key]

    def _see(self, name: str, number: int, rejection: Rejection | None) -> None:
        if rejection is None:
            self._fits.add(name)
        else:
            self._rejections[name] = rejection
        self._class[name] = number
        self._members[number].add(name)
        self._write(name, self._scores.get(number, 0))

    def _weigh(self, state: NodeState) -> tuple[int, Rejection | None]:
        """The class of a node as it is now, and why it cannot take the pod, if so."""
        waits = self._waits(state)
        if state.graph is None or not state.ready or state.problem is not None:
            return self._weighed(self._from.weight(self.request, state, waits))
        key = weight_key(self.request, state, waits)
        known = self._weights.get(key)
        if known is not None:
            return known
        found = self._from.weight(self.request, state, waits)
        if found is None:
            self._unweighed.setdefault(key, {})[state.name] = None
            self._unweighed_as[state.name] = key
            return self._weighed(_UNWEIGHED)
        known = self._weights[key] = self._weighed(found)
        return known

    def _weighed(self, found: Weight | Rejection | None) -> tuple[int, Rejection | None]:
        assert found is not None
        return (_UNFIT, found) if isinstance(found, Rejection) else (self._number(found.rank, found.value), None)

    def _head(self, name: str) -> bytes:
        head = self._heads.get(name)
        if head is None:
            head = b'{"Host":%s,"Score":' % encode_text(name)
            if name in self._class:  # a name that is nobody's must not be kept
                self._heads[name] = head
        return head

    def _number(self, rank: Rank, value: int) -> int:
        number = self._numbers.setdefault((rank, value), len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append((rank, value))
        return number


class Ideal:
    """The best value that a request could get on an empty node of the cluster."""

    def __init__(self, request: Request, weights: Weights) -> None:
        self.request = Request(request.gpus, replace(request.gpu_request, policy=PlacementPolicy.BEST))
        self._from = weights
        self._machine: dict[str, SharedGraph] = {}
        self._count: Counter[SharedGraph] = Counter()
        self._value: int | None = None

    def see(self, name: str, graph: LinkGraph | None) -> None:
        """A node as it is now; None where it has no link graph, or is gone."""
        before, now = self._machine.pop(name, None), None if graph is None else graph.shared
        if now is not None:
            self._machine[name] = now
        if before is now:
            return
        if before is not None:
            self._count[before] -= 1
        if now is not None:
            self._count[now] += 1
        self._value = None

    @property
    def value(self) -> int:
        """MB/s; 0 where no machine could hold the request, or that is not known yet."""
        if self._value is None:
            found = [self._from.weight(self.request, state, False) for state, _ in self.machines]
            value = max((int(one.value) for one in found if isinstance(one, Weight)), default=0)
            if None in found:
                return value
            self._value = value
        return self._value

    @property
    def machines(self) -> list[tuple[NodeState, bool]]:
        """An empty node of each kind that there is, for the question what it would be worth."""
        self._count = +self._count  # machines of which none is left are dropped
        return [(NodeState(NodeName(""), one.graph), False) for one in self._count]


def _list(lines: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"


class Boards:
    """The boards of the kinds of request seen last."""

    LIMIT = 32

    def __init__(self, ledger: GpuLedger, weights: Weights | None = None) -> None:
        self._ledger = ledger
        self._weights = weights
        self._boards: dict[Request, Board] = {}

    def get(self, request: Request) -> Board:
        """The board of this kind of request; the one unused longest makes room for a new one."""
        board = self._boards.pop(request, None) or Board(self._ledger, request, self._weights)
        self._boards[request] = board
        if len(self._boards) > self.LIMIT:
            oldest = self._boards.pop(next(iter(self._boards)))
            self._ledger.unsubscribe(oldest.changed)
        return board

    def peek(self, request: Request) -> Board | None:
        """The board of this kind of request where there is one; unlike `get` it makes none and counts as no use."""
        return self._boards.get(request)

    def answer(self, request: Request, names: Sequence[str], planned: Grant | Rejection | None) -> bytes:
        """prioritize for one pod. The planner has weighed the whole cluster: the node it planned comes before all others.

        `planned`: what the pod gets on its planned node; None for a pod without a plan.
        """
        board = self.get(without_plan(request))
        if planned is None:
            return board.answer(names)
        return board.answer_behind(names, request.planned_node, planned.value if isinstance(planned, Grant) else 0)
