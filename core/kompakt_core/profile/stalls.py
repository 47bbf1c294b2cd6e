"""Where the steps of a training lose time, from how long they take in a few modes.

Source: Stash (ICDCS 2023; arXiv 2208.14344) as far as its published analysis script tells, for interconnect, network and prep
stalls; DS-Analyzer's definition for the fetch stall (cold minus cached), since the script subtracts the prep stall only. Both
divide real by synthetic samples first; here each mode is measured over equally many steps of equal batches: that factor is 1.
"""

import math
from dataclasses import dataclass, fields

from kompakt_core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds per optimizer step; None: not measured.

    one: one device, data from memory. all: all devices of a machine, data from memory. cold: all devices, real data that no cache
    holds. warm: all devices, real data from the page cache. halves: as many devices as `all` on two machines, data from memory.
    """

    one: float | None = None
    all: float | None = None
    cold: float | None = None
    warm: float | None = None
    halves: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """`seconds` per step; `percent` of the mode's step that `of` names. Only the network's may exceed 100; below 0 is noise."""

    seconds: float
    percent: float
    of: str


@dataclass(frozen=True, slots=True)
class Stalls:
    """None: a mode that it needs was not measured.

    interconnect: what talking inside the machine costs. network: what it costs more between two machines. prep: waiting for
    data to be made ready. fetch: waiting for data to be read from where it lies.
    """

    interconnect: Stall | None = None
    network: Stall | None = None
    prep: Stall | None = None
    fetch: Stall | None = None


def stalls(times: StepTimes) -> Stalls:
    """The four stalls of a training. Raises InvalidInput for a time that is not above 0."""
    for field in fields(times):
        value = getattr(times, field.name)
        if value is not None and not 0 < value < math.inf:
            raise InvalidInput(f"step time {field.name} is {value}; expected seconds above 0")
    return Stalls(
        interconnect=_stall(times.all, times.one, times.all, "all"),
        network=_stall(times.halves, times.all, times.all, "all"),
        prep=_stall(times.warm, times.all, times.warm, "warm"),
        fetch=_stall(times.cold, times.warm, times.cold, "cold"),
    )


def _stall(slow: float | None, fast: float | None, whole: float | None, of: str) -> Stall | None:
    if slow is None or fast is None or whole is None:
        return None
    return Stall(slow - fast, 100 * (slow - fast) / whole, of)
