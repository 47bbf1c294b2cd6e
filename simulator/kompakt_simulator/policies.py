"""The scheduling policies, one row each: in which order waiting jobs are tried, and who is stopped for whom."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from kompakt_core.policy.delay import DELAY_POLICIES
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.placements import Placement
from kompakt_simulator.schedulers.kompakt import KompaktScheduler
from kompakt_simulator.schedulers.lease_loss import LeaseLoss
from kompakt_simulator.schedulers.lease_rules import DallyRule, Gandiva, Las, Tiresias
from kompakt_simulator.schedulers.leased import Leased, LeaseRule
from kompakt_simulator.schedulers.queues import Queued, Shortest
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.world import Instant, SimulatedWorld


class JobScheduler(Protocol):
    """Decides for one run. 1. The same calls give the same acts. 2. It keeps the waiting jobs; the world keeps the rest."""

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
        """Act on what has just happened: through world.assign, world.stop, world.wake."""


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """`needs`: without that knowledge it cannot run. `uses_more`: it makes use of more where a run allows it.

    `free_of_cost`: stopping and starting cost nothing by its rules: a bound, nothing to run.
    """

    name: str
    scheduler: Callable[[Placement, Setting], JobScheduler]
    needs: Knowledge = Knowledge.NONE
    uses_more: bool = False
    free_of_cost: bool = False


def _by_submission(world: SimulatedWorld, task: SimulatedJob) -> float:
    return task.job.submit


def _by_remaining_work(world: SimulatedWorld, task: SimulatedJob) -> float:
    return world.remaining(task)


def _dally(name: str) -> SchedulingPolicy:
    """Dally's leases with one of core's delay policies."""
    decide = DELAY_POLICIES[name]
    return SchedulingPolicy(name, lambda _, setting: _leased(DallyRule(setting, decide), setting))


def _leased(rule: LeaseRule, setting: Setting) -> JobScheduler:
    return (Leased if setting.rules.leases_kept else LeaseLoss)(rule, setting.lease_s)


_ROWS = (
    SchedulingPolicy("fifo", lambda place, _: Queued(place, _by_submission, skips=False)),
    SchedulingPolicy("fifo-skip", lambda place, _: Queued(place, _by_submission, skips=True)),
    SchedulingPolicy(
        "sjf", lambda place, _: Queued(place, _by_remaining_work, skips=False), needs=Knowledge.DECLARED, uses_more=True
    ),
    SchedulingPolicy("srtf", lambda place, _: Shortest(place), needs=Knowledge.DECLARED, uses_more=True, free_of_cost=True),
    SchedulingPolicy("las", lambda _, setting: _leased(Las(setting.rules), setting)),
    SchedulingPolicy("tiresias", lambda _, setting: _leased(Tiresias(setting.rules), setting)),
    SchedulingPolicy("gandiva", lambda _, setting: Gandiva(setting)),
    _dally("dally"),
    _dally("no-wait"),
    _dally("never-relax"),
    SchedulingPolicy("kompakt", lambda _place, _setting: KompaktScheduler(), uses_more=True),
)
POLICIES: Final[Mapping[str, SchedulingPolicy]] = MappingProxyType({policy.name: policy for policy in _ROWS})
