"""Rules on which two correct simulators may differ: what ours does, and the other thing that it can do."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kompakt_core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Rules:
    """`submission_breaks_ties`: where two jobs stand alike in a queue, the earlier goes first, then the smaller id; else the id.

    `one_pass`: all completions of an instant, then all arrivals, then the scheduler is called once; else after each of them.
    `srtf_is_free`: its preemptions cost nothing; else what the setting says. `clock_of_trace`: the makespan ends on the trace's
    own clock; else it begins with the first submission. `too_large_refused`: jobs larger than the cluster are counted and left
    out; else they are an error. `offers_of_events`, `first_fits`: Dally offers what an event freed (an arrival: all), and takes
    the first place that fits, as published; else all that is free, and the place that fits best.
    """

    submission_breaks_ties: bool = True
    one_pass: bool = True
    srtf_is_free: bool = True
    clock_of_trace: bool = True
    too_large_refused: bool = True
    offers_of_events: bool = True
    first_fits: bool = True


@dataclass(frozen=True, slots=True)
class Switch:
    """How a rule is written: the word for what we do, which is the default, and the word for the other."""

    field: str
    ours: str
    other: str


SWITCHES: Final[Mapping[str, Switch]] = MappingProxyType(
    {
        "ties": Switch("submission_breaks_ties", "submit", "id"),
        "passes": Switch("one_pass", "instant", "event"),
        "srtf": Switch("srtf_is_free", "free", "charged"),
        "makespan": Switch("clock_of_trace", "clock", "submission"),
        "too-large": Switch("too_large_refused", "refuse", "error"),
        "offers": Switch("offers_of_events", "event", "all"),
        "fit": Switch("first_fits", "first", "best"),
    }
)
WORDS: Final = ", ".join(f"{name}={one.ours}|{one.other}" for name, one in SWITCHES.items())


def parse_rules(text: str) -> Rules:
    """Rules from `ties=id,srtf=charged`; what is not named stays as ours. Raises InvalidInput with what is allowed."""
    chosen: dict[str, bool] = {}
    for part in text.split(","):
        name, _, word = part.strip().partition("=")
        switch = SWITCHES.get(name)
        if switch is None or word not in (switch.ours, switch.other) or switch.field in chosen:
            raise InvalidInput(f"--rules {part.strip()[:80]}: expected some of {WORDS}, each at most once")
        chosen[switch.field] = word == switch.ours
    return Rules(**chosen)
