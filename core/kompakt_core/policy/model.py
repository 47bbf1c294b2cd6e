"""What a delay policy is told, and what it answers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kompakt_core.placement.model import Level
from kompakt_core.policy.levels import Levels


@dataclass(frozen=True, slots=True)
class Timers:
    """Seconds to insist on one machine, one rack, one block. All run from the same moment; each is at least the one before."""

    machine_s: float
    rack_s: float
    block_s: float = math.inf

    def of(self, level: Level) -> float:
        """How long to insist on this level; for ever on the whole cluster, beyond which there is nothing."""
        return {Level.MACHINE: self.machine_s, Level.RACK: self.rack_s, Level.BLOCK: self.block_s}.get(level, math.inf)


NO_WAITING = Timers(0, 0, 0)
OVERTAKEN_AT_MOST = 1000


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang without GPUs. `since`: when its timers began, on the clock of `now`.

    `slowdown`: extra seconds per second of pure computing, by level (0 = communication is free); levels left out count 0.
    `attained_s`: seconds of computing done so far; `remaining_s`: what is left, if the job declares it.
    `overtaken`: how many gangs that came later were placed meanwhile with GPUs that would have served it; from
    `overtaken_at_most` on what would serve it is kept for it.
    """

    gpus: int
    since: float
    timers: Timers = NO_WAITING
    slowdown: Mapping[Level, float] = field(default_factory=dict)
    attained_s: float = 0.0
    remaining_s: float | None = None
    overtaken: int = 0
    overtaken_at_most: int = OVERTAKEN_AT_MOST

    @property
    def passed_over(self) -> bool:
        """Whether enough others went before it."""
        return self.overtaken >= self.overtaken_at_most


@dataclass(frozen=True, slots=True)
class LevelOffer:
    """What a gang could have now. `level`: the best that the GPUs on offer allow, None = they are too few."""

    levels: Levels
    level: Level | None


@dataclass(frozen=True, slots=True)
class PlaceAt:
    """Take it now, at this level."""

    level: Level


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing now. `at`: when the answer changes by time alone; None: only other GPUs change it. `level`: what it waits for."""

    at: float | None
    level: Level


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep what would serve it at this level from everybody else: it has been overtaken often enough."""

    level: Level


DelayDecision = PlaceAt | WaitUntil | Reserve

# A delay policy. 1. Its inputs are read-only. 2. Same inputs, same answer. 3. It never places worse than the offer's level,
# and never while the offer has none. 4. It reads no duration but `remaining_s`.
DelayPolicy = Callable[[WaitingGang, LevelOffer, float], DelayDecision]
