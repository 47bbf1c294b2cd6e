"""A plan for a budget of memory, and what the report says of it. No torch here."""

from dataclasses import dataclass
from typing import Any, Final

NEXT: Final = 1 << 30  # bytes of which the report says what they would buy
WORKERS: Final = (2, 4, 8)  # numbers of workers for which it says what sharding would leave


@dataclass(frozen=True)
class BudgetPlan:
    """plain: layers that stay as they are; packed: the others; peak: bytes that the step then takes at most; seconds: of packing
    and unpacking in it.
    """

    plain: frozenset[str]
    packed: frozenset[str]
    peak: int
    seconds: float


@dataclass(frozen=True)
class BudgetFigures:
    """What the report says. asked: as the user wrote it; budget: bytes; plan: in force; least, all_plain: bytes of the peak with
    all layers packed and with none; all_seconds: of a step that packs all; more_seconds: with NEXT bytes more; state: bytes of
    weights, their gradients and the optimizer's state; earlier: what became of the plan of an earlier attempt, "" without one.
    """

    asked: str
    budget: int
    plan: BudgetPlan
    least: int
    all_plain: int
    all_seconds: float
    more_seconds: float
    state: int
    earlier: str = ""

    @property
    def reached(self) -> bool:
        return self.plan.peak <= self.budget

    def said(self) -> dict[str, Any]:
        """For the process's file. sharded: what would be left of `least`, by number of workers that share the state by FSDP2."""
        return {
            "asked": self.asked,
            "bytes": self.budget,
            "reached": self.reached,
            "peakBytes": self.plan.peak,
            "leastBytes": self.least,
            "plainBytes": self.all_plain,
            "packed": len(self.plan.packed),
            "layers": len(self.plan.packed) + len(self.plan.plain),
            "milliseconds": round(1e3 * self.plan.seconds, 3),
            "allMilliseconds": round(1e3 * self.all_seconds, 3),
            "moreMilliseconds": round(1e3 * self.more_seconds, 3),
            "sharded": {str(n): self.least - self.state * (n - 1) // n for n in WORKERS} if self.state else {},
            **({"earlier": self.earlier} if self.earlier else {}),
        }
