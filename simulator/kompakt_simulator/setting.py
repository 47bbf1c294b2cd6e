"""What a run may switch: costs, leases and timers, what jobs say about themselves, and where correct simulators differ."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.policy.model import OVERTAKEN_AT_MOST
from kompakt_simulator.network import FREE, Network


@dataclass(frozen=True, slots=True)
class SimulationRules:
    """`submission_breaks_ties`: where two jobs stand alike in a queue, the earlier goes first, then the smaller id; else the id.

    `one_pass`: all completions of an instant, then all arrivals, then the scheduler is called once; else after each of them.
    `srtf_is_free`: its preemptions cost nothing; else what the setting says. `clock_of_trace`: the makespan ends on the trace's
    own clock; else it begins with the first submission. `too_large_refused`: jobs larger than the cluster are counted and left
    out; else they are an error. `offers_of_events`, `first_fits`: Dally offers what an event freed (an arrival: all), and takes
    the first place that fits, as published; else all that is free, and the place that fits best.

    The rest is as in the simulator of Dally's authors (cluster-sim) where it is not ours. `leases_kept`: at the end of its lease
    a job goes on unless another takes its GPUs; else it always gives them up, and they are offered after the checkpoint's time.
    `leases_end_anywhere`: in the latter case at the lease's time; else after the last chunk of work that begins in it.
    `ends_free`: in the latter case the GPUs of a job that has ended are offered at once; else after the checkpoint's time too.
    `whole_machines`: Dally takes the first machine that fits; else the first half of one, then the first machine.
    `two_queues`: Tiresias serves by queue and submission; else by service alone. `skew_by_ratio`: Tiresias lets jobs spread that
    communicate little; else by a list of models, and (only where leases are not kept) any job that is offered a machine's worth
    of GPUs may take one rack.
    `all_to_las`: las and Tiresias see all free GPUs at every event; else those that an event freed, as Dally.
    """

    submission_breaks_ties: bool = True
    one_pass: bool = True
    srtf_is_free: bool = True
    clock_of_trace: bool = True
    too_large_refused: bool = True
    offers_of_events: bool = True
    first_fits: bool = True
    leases_kept: bool = True
    leases_end_anywhere: bool = True
    ends_free: bool = True
    whole_machines: bool = True
    two_queues: bool = True
    skew_by_ratio: bool = True
    all_to_las: bool = True


@dataclass(frozen=True, slots=True)
class RuleSwitch:
    """How a rule is written: the word for what we do, which is the default, and the word for the other."""

    field: str
    ours: str
    other: str


SWITCHES: Final[Mapping[str, RuleSwitch]] = MappingProxyType(
    {
        "ties": RuleSwitch("submission_breaks_ties", "submit", "id"),
        "passes": RuleSwitch("one_pass", "instant", "event"),
        "srtf": RuleSwitch("srtf_is_free", "free", "charged"),
        "makespan": RuleSwitch("clock_of_trace", "clock", "submission"),
        "too-large": RuleSwitch("too_large_refused", "refuse", "error"),
        "offers": RuleSwitch("offers_of_events", "event", "all"),
        "fit": RuleSwitch("first_fits", "first", "best"),
        "leases": RuleSwitch("leases_kept", "kept", "lost"),
        "chunks": RuleSwitch("leases_end_anywhere", "cut", "whole"),
        "ends": RuleSwitch("ends_free", "free", "charged"),
        "parts": RuleSwitch("whole_machines", "machine", "half"),
        "queues": RuleSwitch("two_queues", "two", "one"),
        "skew": RuleSwitch("skew_by_ratio", "ratio", "models"),
        "las-offers": RuleSwitch("all_to_las", "all", "event"),
    }
)
WORDS: Final = ", ".join(f"{name}={one.ours}|{one.other}" for name, one in SWITCHES.items())


def parse_rules(text: str) -> SimulationRules:
    """Rules from `ties=id,srtf=charged`; what is not named stays as ours. Raises InvalidInput with what is allowed."""
    chosen: dict[str, bool] = {}
    for part in text.split(","):
        name, _, word = part.strip().partition("=")
        switch = SWITCHES.get(name)
        if switch is None or word not in (switch.ours, switch.other) or switch.field in chosen:
            raise InvalidInput(f"--rules {part.strip()[:80]}: expected some of {WORDS}, each at most once")
        chosen[switch.field] = word == switch.ours
    return SimulationRules(**chosen)


class Knowledge(IntEnum):
    """What a policy learns about the work of a job. More includes less."""

    NONE = 0  # what the job has had so far
    DECLARED = 1  # what the job says it needs in all, as one that reports step and total; may be wrong
    ORACLE = 2  # the truth


@dataclass(frozen=True, slots=True)
class Setting:
    """All times in seconds. `timers`: Dally's R and N in leases, None = tuned. `knowledge`: None = what the policy declares.

    `restart_s`: a job that starts again holds its GPUs so long before it computes. `checkpoint_s_per_gpu`: GPUs given up
    under preemption come back so much later, times the GPUs of the job. `checkpoint_interval_s`: 0 = nothing is lost by
    preemption; else work since the last whole interval of computing is. `declared_error`: declared totals are wrong by a
    factor exp(N(0, ln declared_error)); 1 = they are right. `overtaken_at_most`: when so many others went before a job that has
    no place, GPUs are kept for it (policy kompakt). `rules`: where simulators differ.
    Raises InvalidInput for negative or empty values.
    """

    restart_s: float = 30.0
    checkpoint_s_per_gpu: float = 1.0
    checkpoint_interval_s: float = 0.0
    lease_s: float = 3600.0
    history: float = 48.0
    timers: tuple[float, float] | None = None
    knowledge: Knowledge | None = None
    seed: int = 0
    declared_error: float = 1.0
    overtaken_at_most: int = OVERTAKEN_AT_MOST
    network: Network = field(default=FREE)
    rules: SimulationRules = field(default=SimulationRules())

    def __post_init__(self) -> None:
        for name in ("restart_s", "checkpoint_s_per_gpu", "checkpoint_interval_s"):
            self._at_least(name, 0)
        self._at_least("lease_s", 0.001)
        self._at_least("overtaken_at_most", 0)
        for name in ("history", "declared_error"):
            self._at_least(name, 1)
        if self.lease_s <= self.restart_s:
            raise InvalidInput(
                f"lease {self.lease_s} s; expected more than the restart of {self.restart_s} s, else nobody ever computes"
            )
        if self.timers is not None and not all(0 <= timer <= 1e9 for timer in self.timers):
            raise InvalidInput(f"timers {self.timers[0]},{self.timers[1]}; expected two numbers of leases from 0 to 1e9")

    def _at_least(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if not least <= value <= 1e9:
            raise InvalidInput(f"{name} {value}; expected a number from {least:g} to 1e9")
