"""A plan as a plain value that outlives its process, for the next attempt of a job, and what it holds under. No torch here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_runtime.budget.figures import BudgetFigures, BudgetPlan

VERSION: Final = 1
MOST_PASSES: Final = 64  # different ones of a step
MOST_NAMES: Final = 1 << 16
LARGEST: Final = 1 << 53  # whole numbers up to here survive every reader's floating point

Inputs = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class ForwardPass:
    """model: a digest of its parameters' names, shapes, types and `requires_grad`, and of the type of autocast; inputs: type and
    shape of each tensor it was given.
    """

    model: str
    inputs: Inputs

    def covers(self, other: "ForwardPass") -> bool:
        """Does it take at least what the other takes? Without a tensor nothing tells how large the batch is."""
        same = self.model == other.model and bool(self.inputs) and len(self.inputs) == len(other.inputs)
        return same and all(_covers(*pair) for pair in zip(self.inputs, other.inputs, strict=True))


def _covers(larger: tuple[str, tuple[int, ...]], smaller: tuple[str, tuple[int, ...]]) -> bool:
    (kind, shape), (other, sizes) = larger, smaller
    return kind == other and len(shape) == len(sizes) and all(a >= b for a, b in zip(shape, sizes, strict=True))


@dataclass(frozen=True)
class PlanConditions:
    """What a plan holds under. budget: bytes; torch: its version; device: its kind; settings: a digest of what changes copies."""

    budget: int
    torch: str
    device: str
    settings: str


@dataclass(frozen=True)
class KeptPlan:
    """passes: of the step that was recorded, each kind once; count: of its passes; unseen, at, moments: as UnseenBytes has
    them.
    """

    under: PlanConditions
    passes: frozenset[ForwardPass]
    count: int
    figures: BudgetFigures
    unseen: int
    at: tuple[int, ...]
    moments: str

    def covers(self, one: ForwardPass, count: int) -> bool:
        """Is that, as the count-th pass of a step, no more than it was made for? Of passes of one model the smallest counts:
        two large ones take more than a large one and a small one.
        """
        alike = [known for known in self.passes if known.model in (one.model, "")]  # "": not all could be told apart
        return count <= self.count and bool(alike) and all(known.covers(one) for known in alike)

    def state(self) -> dict[str, Any]:
        """Lists, dictionaries, words and numbers."""
        figures, plan = self.figures, self.figures.plan
        return {
            "version": VERSION,
            **vars(self.under),
            "passes": [[one.model, [[kind, list(shape)] for kind, shape in one.inputs]] for one in self.passes],
            "count": self.count,
            "plain": sorted(plan.plain),
            "packed": sorted(plan.packed),
            "peak": plan.peak,
            "seconds": plan.seconds,
            **{name: getattr(figures, name) for name in FIGURES},
            "unseen": self.unseen,
            "at": list(self.at),
            "moments": self.moments,
        }

    @staticmethod
    def of(state: object, asked: str) -> "KeptPlan":
        """asked: the budget as the user writes it now. Raises ValueError that names what is wrong."""
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise ValueError(f"this is no plan of version {VERSION}")
        if state.keys() != {"version", *FIELDS}:
            raise ValueError(f"a plan must have exactly {', '.join(FIELDS)}")
        for name, right in FIELDS.items():
            if not right(state[name]):
                raise ValueError(f"{name} cannot be {repr(state[name])[:80]}")
        plan = BudgetPlan(frozenset(state["plain"]), frozenset(state["packed"]), state["peak"], state["seconds"])
        figures = BudgetFigures(asked, state["budget"], plan, **{name: state[name] for name in FIGURES})
        under = PlanConditions(*(state[name] for name in ("budget", "torch", "device", "settings")))
        passes = frozenset(
            ForwardPass(model, tuple((kind, tuple(shape)) for kind, shape in inputs)) for model, inputs in state["passes"]
        )
        return KeptPlan(under, passes, state["count"], figures, state["unseen"], tuple(state["at"]), state["moments"])


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 1024


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _seconds(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value) and 0 <= value < 1e9


def _list_of(right: Callable[[object], bool], most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(right, value))


def _pair(first: Callable[[object], bool], second: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])


Check = Callable[[object], bool]
FIGURES: Final[Mapping[str, Check]] = {
    "least": _count, "all_plain": _count, "all_seconds": _seconds, "more_seconds": _seconds, "state": _count,
}  # fmt: skip
FIELDS: Final[Mapping[str, Check]] = {
    "budget": _count, "torch": _text, "device": _text, "settings": _text,
    "passes": _list_of(_pair(_text, _list_of(_pair(_text, _list_of(_count, 16)), MOST_PASSES)), MOST_PASSES),
    "count": _count, "plain": _list_of(_text, MOST_NAMES), "packed": _list_of(_text, MOST_NAMES), "peak": _count,
    "seconds": _seconds, **FIGURES, "unseen": _count, "at": _list_of(_count, MOST_NAMES), "moments": _text,
}  # fmt: skip
