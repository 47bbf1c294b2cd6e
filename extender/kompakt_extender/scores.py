"""filter and prioritize from per-node results that are kept until a node changes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kompakt_extender import words
from kompakt_extender.decide import Grant, No, Request, grant, rank
from kompakt_extender.ledger import Ledger
from kompakt_extender.wire import encode_text

TOP = 10  # extender/v1 MaxExtenderPriority
Rank = tuple[int, ...]
_UNFIT = -1  # class of nodes that cannot take the pod
_NOWHERE = -2  # class of a node before it is seen
_UNKNOWN = No(words.UNKNOWN_NODE)
_TAILS = tuple(b"%d}" % score for score in range(TOP + 1))


def scores_of(ranks: Iterable[Rank]) -> dict[Rank, int]:
    """From ranks to numbers: the best rank gets 10, the next different one 9, and so on; from the eleventh on 0."""
    return {rank: max(TOP - place, 0) for place, rank in enumerate(sorted(set(ranks), reverse=True))}


class Board:
    """What every node is worth to one kind of request. Only nodes that changed since the last call are looked at again.

    Ranks are numbered in the order they turn up (`_class`), because 5,000 small integers are compared much faster than
    5,000 tuples; `_lines` holds each node's finished JSON text for the scores given last.
    """

    def __init__(self, ledger: Ledger, request: Request) -> None:
        self._ledger = ledger
        self._request = request
        self.changed = ledger.subscribe()
        self._class: dict[str, int] = {}
        self._members: Counter[int] = Counter()
        self._numbers: dict[Rank, int] = {}
        self._ranks: list[Rank] = []
        self._scores: Mapping[int, int] = {}
        self._heads: dict[str, bytes] = {}
        self._lines: dict[str, bytes] = {}
        self._refusals: dict[str, No] = {}

    def verdicts(self, names: Sequence[str]) -> tuple[list[str], dict[str, No]]:
        """The nodes that can take the pod, and why each other one cannot."""
        self._refresh()
        refused = {name: self._refusals.get(name, _UNKNOWN) for name in names if self._class.get(name, _UNFIT) == _UNFIT}
        return [name for name in names if name not in refused] if refused else list(names), refused

    def rank(self, name: str) -> Rank | None:
        """What this node is worth; None where it cannot take the pod."""
        self._refresh()
        number = self._class.get(name, _UNFIT)
        return None if number == _UNFIT else self._ranks[number]

    def by_rank(self) -> Iterator[str]:
        """The nodes that can take the pod, best first. Equals come in no particular order."""
        self._refresh()
        fit = (number for number, count in self._members.items() if count and number != _UNFIT)
        for number in sorted(fit, key=self._ranks.__getitem__, reverse=True):
            yield from (name for name, one in self._class.items() if one == number)

    def answer(self, names: Sequence[str]) -> bytes:
        """The HostPriorityList of these nodes as JSON text; a node that is not known gets 0."""
        self._refresh()
        try:
            self._score(self._classes(names))
            return b"[" + b",".join(map(self._lines.__getitem__, names)) + b"]"
        except KeyError:
            return encode_scores(names, {name: self.rank(name) for name in names})

    def _classes(self, names: Sequence[str]) -> Iterable[int]:
        """The classes among these nodes. Asked for as many as fit, they are taken to be those: no look at each is needed."""
        if len(names) == self._members.total() - self._members[_UNFIT]:
            return (number for number, count in self._members.items() if count)
        return set(map(self._class.__getitem__, names))

    def _score(self, classes: Iterable[int]) -> None:
        by_rank = scores_of(self._ranks[number] for number in classes if number != _UNFIT)
        scores = {self._numbers[rank]: score for rank, score in by_rank.items()}
        if scores != self._scores:
            self._scores = scores
            tails = {number: _TAILS[score] for number, score in scores.items()}
            self._lines = {name: self._heads[name] + tails.get(number, _TAILS[0]) for name, number in self._class.items()}

    def _refresh(self) -> None:
        while self.changed:
            name = self.changed.pop()
            self._members[self._class.pop(name, _NOWHERE)] -= 1
            self._refusals.pop(name, None)
            state = self._ledger.state(name)
            if state is None:
                self._lines.pop(name, None)
                continue
            found = grant(self._request, state)
            if isinstance(found, Grant):
                number = self._number(rank(self._request, state, found))
            else:
                number, self._refusals[name] = _UNFIT, found
            self._class[name] = number
            self._members[number] += 1
            head = self._heads.setdefault(name, _head(name))
            self._lines[name] = head + _TAILS[self._scores.get(number, 0)]
        del self._members[_NOWHERE]

    def _number(self, rank: Rank) -> int:
        number = self._numbers.setdefault(rank, len(self._ranks))
        if number == len(self._ranks):
            self._ranks.append(rank)
        return number


def _head(name: str) -> bytes:
    return b'{"Host":%s,"Score":' % encode_text(name)


def line(name: str, score: int) -> bytes:
    """One HostPriority as JSON text."""
    return _head(name) + _TAILS[score]


def encode_scores(names: Iterable[str], ranks: Mapping[str, Rank | None]) -> bytes:
    """The HostPriorityList of nodes whose ranks are given; without a rank: 0."""
    scores = scores_of(rank for rank in ranks.values() if rank is not None)
    return b"[" + b",".join(line(name, 0 if (r := ranks[name]) is None else scores[r]) for name in names) + b"]"


class Boards:
    """The boards of the kinds of request seen last."""

    LIMIT = 32

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._boards: dict[Request, Board] = {}

    def get(self, request: Request) -> Board:
        """The board of this kind of request; the one unused longest makes room for a new one."""
        board = self._boards.pop(request, None) or Board(self._ledger, request)
        self._boards[request] = board
        if len(self._boards) > self.LIMIT:
            oldest = self._boards.pop(next(iter(self._boards)))
            self._ledger.unsubscribe(oldest.changed)
        return board

    def peek(self, request: Request) -> Board | None:
        """The board of this kind of request where there is one; unlike `get` it makes none and counts as no use."""
        return self._boards.get(request)

    def answer(self, request: Request, names: Sequence[str]) -> bytes:
        """prioritize for one pod. The planner has weighed the whole cluster: the node it planned comes before all others."""
        board = self.get(Request(request.gpus, request.wish))
        if not request.planned_node:
            return board.answer(names)
        ranks: dict[str, Rank | None] = {name: board.rank(name) for name in names}
        others = {name: None if rank is None else (0, *rank) for name, rank in ranks.items()}
        return encode_scores(names, {**others, request.planned_node: (1,)})
