"""The plan of an earlier attempt: in force from the first forward pass on, while it was made for what this attempt does."""

from typing import Any, Final

import torch

from kompakt_runtime.budget.figures import BudgetFigures
from kompakt_runtime.budget.kept import ForwardPass, KeptPlan, PlanConditions
from kompakt_runtime.budget.passes import SeenPasses
from kompakt_runtime.budget.unseen import UnseenBytes

IN_FORCE: Final = "in force from the first step"
OTHER_CONDITIONS: Final = "not used: the budget, the version of torch, the device or the settings were others"
LARGER: Final = "not used: it was made for another model, or for steps that are smaller or cannot be compared"
BATCH_MEASURED: Final = "not used: a batch is suggested by steps that pack all"
EXCEEDED: Final = "given up: a step took more than the budget"


class EarlierPlan:
    """As Remembered: `load` takes over what an earlier process wrote, `state` is what the next one may take over; changed: since
    whoever writes that down set it back. words: for the report, what became of it; "" where there was none.
    """

    def __init__(self, asked: str, settings: str, used: bool = True) -> None:
        """asked: the budget as the user writes it; settings: a digest of those that change what is packed, or how tightly; used:
        whether this attempt may go by it.
        """
        self._asked, self._settings, self._used = asked, settings, used
        self.passes = SeenPasses()
        self.changed = False
        self.words = ""
        self._plan: KeptPlan | None = None
        self._looked_at = -1
        self._ended: tuple[frozenset[ForwardPass], int] = (frozenset(), 0)
        self._recorded = self._ended
        self._next: KeptPlan | None = None

    def load(self, state: object) -> None:
        """Raises ValueError that names what is wrong."""
        plan = KeptPlan.of(state, self._asked)
        self._plan, self.words = (plan, IN_FORCE) if self._used else (None, BATCH_MEASURED)

    def state(self) -> dict[str, Any]:
        """{} while there is no plan."""
        return {} if self._next is None else self._next.state()

    def in_force(self, budget: int, device: Any) -> KeptPlan | None:
        """While a forward pass runs: the plan, unless it was not made for all the passes so far."""
        if self._plan is not None and self._looked_at != self.passes.count:
            self._looked_at = self.passes.count
            if self._plan.under != self._under(budget, device):
                self.drop(OTHER_CONDITIONS)
            elif not self._plan.covers(self.passes.last, self.passes.count):
                self.drop(LARGER)
        return self._plan

    def drop(self, words: str) -> None:
        self._plan, self.words = None, words

    def _under(self, budget: int, device: Any) -> PlanConditions:
        kind = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device.type)
        return PlanConditions(budget, str(torch.__version__), kind, self._settings)

    def ended(self) -> None:
        """The step that is recorded is over."""
        self._ended = frozenset(self.passes.seen), self.passes.count

    def recorded(self) -> None:
        """That step can be planned for."""
        self._recorded = self._ended

    def planned(self, figures: BudgetFigures, unseen: UnseenBytes, device: Any) -> None:
        """There is a plan of this attempt."""
        before, at, moments = unseen.state()
        passes, count = self._recorded
        self._next = KeptPlan(self._under(figures.budget, device), passes, count, figures, before, at, moments)
        self.changed = True

    def stepped(self) -> None:
        """An optimizer step is over."""
        self.passes.stepped()
        self._looked_at = -1
