"""What compiled code shares with the session that it packs for."""

from collections.abc import Callable
from dataclasses import dataclass

from kompakt_runtime.bounds.nonlinear import Operations
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.budget.control import BudgetControl
from kompakt_runtime.compat.hooks import Pair
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.saved.account import Account


@dataclass(frozen=True, eq=False)
class SessionParts:
    """operations: where what is read for gradients that go on is packed too; target: that of one layer, now; owns: are these
    saved-tensor hooks the session's?
    """

    config: RuntimeConfig
    figures: Figures
    sites: Sites
    account: Account
    budget: BudgetControl
    operations: Operations | None
    target: Callable[[], float]
    owns: Callable[[Pair], bool]
