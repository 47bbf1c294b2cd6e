"""Where autograd's graph begins, and each node of it as it grows, once."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kompakt_runtime.compat.graph import behind, number_of

Node = Any
ACCUMULATOR: Final = 2**63  # numbers of gradient accumulators are larger


class Walk:
    """What lies behind a node never changes once it is made, so behind a visited node there is nothing new.

    Holds numbers, not nodes: a node that is held keeps all it saved.
    """

    def __init__(self) -> None:
        self._visited: set[int] = set()

    def fresh(self, roots: Iterable[Node], oldest: int, unfinished: int) -> Iterator[Node]:
        """The nodes at and behind `roots` that were not visited, numbered `oldest` to below `unfinished`.

        oldest: older ones are of no interest, nor is what lies behind them, which is older still. unfinished: the number of a
        node that has not saved all it will, or of the next node: it is passed, and visited another time.
        """
        waiting = list(roots)
        passed: set[int] = set()
        while waiting:
            node = waiting.pop()
            number = number_of(node)
            if number < oldest or number >= ACCUMULATOR or number in self._visited or number in passed:
                continue
            (passed if number >= unfinished else self._visited).add(number)
            if number < unfinished:
                yield node
            waiting += behind(node)

    def forget(self, oldest: int) -> None:
        """Nothing older than this will be asked for again."""
        self._visited = {number for number in self._visited if number >= oldest}

    def __len__(self) -> int:
        return len(self._visited)


def roots(outputs: Any) -> Iterator[Node]:
    """The nodes that made these tensors (in tuples, lists, dicts, dataclasses)."""
    if isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    elif dataclasses.is_dataclass(outputs):
        outputs = tuple(vars(outputs).values())
    if isinstance(outputs, tuple | list):
        for output in outputs:
            yield from roots(output)
    elif getattr(outputs, "grad_fn", None) is not None:
        yield outputs.grad_fn
