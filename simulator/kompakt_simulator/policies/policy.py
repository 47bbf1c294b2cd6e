"""What a policy is: what it needs to know, and how it makes a scheduler for one run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kompakt_simulator.placements.table import Placement
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.world import Instant, World


class Scheduler(Protocol):
    """Decides for one run. 1. The same calls give the same acts. 2. It keeps the waiting jobs; the world keeps the rest."""

    def step(self, world: World, instant: Instant) -> None:
        """Act on what has just happened: through world.assign, world.stop, world.wake."""


@dataclass(frozen=True, slots=True)
class Policy:
    """`needs`: without that knowledge it cannot run. `uses_more`: it makes use of more where a run allows it.

    `free_of_cost`: stopping and starting cost nothing by its rules: a bound, nothing to run.
    """

    name: str
    scheduler: Callable[[Placement, Setting], Scheduler]
    needs: Knowledge = Knowledge.NONE
    uses_more: bool = False
    free_of_cost: bool = False
