"""What a profile says of the places where it was taken: seconds of a step, what they consist of, how much they varied. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.profile.document import Profile

# The runs that lead to each run, and what each adds to the one before (the formulas are those of profile.stalls).
LEADING: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"one": (), "all": ("one",), "warm": ("one", "all"), "halves": ("one", "all")}
)
ADDS: Final[Mapping[str, str]] = MappingProxyType({"all": "interconnect", "warm": "prep", "halves": "network"})


@dataclass(frozen=True, slots=True)
class Hardware:
    """So many GPUs in all, equally many on each of so many machines of one kind."""

    machine: str
    gpus: int
    machines: int = 1

    @property
    def each(self) -> int:
        """GPUs of one machine."""
        return self.gpus // self.machines

    def __str__(self) -> str:
        several = f" on {self.machines} machines" if self.machines > 1 else ""
        return f"{self.machine} with {self.gpus} GPUs{several}"

    def within(self, other: "Hardware") -> bool:
        """Whether the other has as many machines of this kind or more, each with as many GPUs or more."""
        return (self.machine, self.machines <= other.machines, self.each <= other.each) == (other.machine, True, True)


@dataclass(frozen=True, slots=True)
class StepPart:
    """Seconds of a step (a stall below 0 is noise), and what they are."""

    seconds: float
    what: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean seconds of one step on so many GPUs (of all machines together); each GPU takes one batch a step.

    `parts`: what the step consists of; they sum to it. `quarters`: means of the four quarters of the steps, in seconds. `whole`:
    false where data came from memory although steps with real data were timed as well, so that more than this is known to be
    lost. `data`: the most that the prep stall of such a run on several machines can be. `run`: its mode.
    `real_data`: on data as the training gets them, as in each run of a script whose data could not be replaced.
    """

    machine: str
    gpus: int
    step_seconds: float
    machines: int = 1
    parts: tuple[StepPart, ...] = ()
    quarters: tuple[float, ...] = ()
    whole: bool = True
    data: StepPart | None = None
    run: str = "all"
    real_data: bool = False

    @property
    def hardware(self) -> Hardware:
        return Hardware(self.machine, self.gpus, self.machines)

    @property
    def least(self) -> float:
        """Seconds of a step in the fastest quarter."""
        return min((self.step_seconds, *self.quarters))

    @property
    def most(self) -> float:
        """Seconds of a step in the slowest quarter."""
        return max((self.step_seconds, *self.quarters))


def measured(profile: Profile) -> list[Measured]:
    """The places of a profile: all devices (on data as the training gets them, where that was timed), one of them, and halves."""
    real = "warm" in profile.runs
    whole = not real or not profile.data_seen
    found = []
    if real or "all" in profile.runs:
        found.append(_at(profile, "warm" if real else "all"))
    if "one" in profile.runs and profile.devices > 1:
        found.append(_at(profile, "one", whole))
    if "halves" in profile.runs and profile.together and profile.devices % profile.half_machines == 0:
        found.append(_at(profile, "halves", whole, _most_prep(profile)))
    return found


def distinct(known: Iterable[Measured]) -> None:
    """Raises InvalidInput for step times that cannot be, and for two profiles of the same hardware that differ."""
    seen: dict[Hardware, Measured] = {}
    for one in known:
        if not 0 < one.step_seconds < math.inf:
            raise InvalidInput(f"{one.machine}: a step of {one.step_seconds} s; expected a time above 0")
        if one.run != "one" and seen.setdefault(one.hardware, one).step_seconds != one.step_seconds:
            raise InvalidInput(f"two profiles of {one.hardware} differ; expected one, or two names by --machine")


def replaced(earlier: Iterable[Measured], fresh: Iterable[Measured]) -> list[Measured]:
    """All measurements; a fresh one replaces what was measured earlier on the same hardware."""
    fresh = list(fresh)
    again = {one.hardware for one in fresh}
    return [*(one for one in earlier if one.hardware not in again), *fresh]


def _at(profile: Profile, mode: str, whole: bool = True, data: StepPart | None = None) -> Measured:
    halves = mode == "halves"
    return Measured(
        machine=(profile.half_machine or profile.machine) if halves else profile.machine,
        gpus=1 if mode == "one" else profile.devices,
        step_seconds=profile.runs[mode].step_seconds,
        machines=profile.half_machines if halves else 1,
        parts=_parts(profile, mode),
        quarters=profile.runs[mode].parts,
        whole=whole,
        data=data,
        run=mode,
        real_data=mode == "warm" or not profile.data_seen,
    )


def _parts(profile: Profile, mode: str) -> tuple[StepPart, ...]:
    """The step of a run as a run with fewer stalls, and what each run after it adds."""
    times = profile.times()
    seconds = profile.runs[mode].step_seconds
    parts: list[StepPart] = []
    name = mode
    for before in reversed(LEADING[mode]):
        fewer = getattr(times, before)
        if fewer is None or getattr(times, name) is None:
            break
        parts.insert(0, StepPart(seconds - fewer, ADDS[name]))
        name, seconds = before, fewer
    return (StepPart(seconds, f"run {name}"), *parts)


def _most_prep(profile: Profile) -> StepPart | None:
    """What real data can have cost more than data from memory, by the quarters that are furthest apart; not below 0."""
    times = profile.times()
    if times.all is None or times.warm is None:
        return None
    seconds = max(_quarters(profile, "warm")) - min(_quarters(profile, "all"))
    return StepPart(max(0.0, seconds), f"prep: slowest quarter of run warm - fastest of run all on {profile.devices} GPUs")


def _quarters(profile: Profile, mode: str) -> tuple[float, ...]:
    return (profile.runs[mode].step_seconds, *profile.runs[mode].parts)
