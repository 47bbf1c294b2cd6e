"""Leased policies remember who refused what. That saves time and changes nothing."""

import random
from dataclasses import replace

import pytest

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.jobs import Milliseconds, SimulatedJob, TraceJob
from kompakt_simulator.network import FREE, Network
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES, SchedulingPolicy
from kompakt_simulator.schedulers.lease_rules import DallyRule
from kompakt_simulator.schedulers.leased import Leased
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.setting import Setting, SimulationRules
from kompakt_simulator.simulation import SimulationResult, simulate
from kompakt_simulator.world import SimulatedWorld

# With these the timers of seed 0 go down while jobs wait by the old ones, and it shows.
NETWORK = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 8})
SETTING = Setting(network=NETWORK, lease_s=60, history=24, restart_s=1)


class Forgetful(Leased):
    """Asks everybody anew at each offer."""

    def _first(self, world: SimulatedWorld, pool: Pool, size: int, *before: object):  # type: ignore[no-untyped-def]
        self._closed.clear()
        return super()._first(world, pool, size, *before)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_who_is_asked_again_only_where_timers_changed_answers_as_if_asked_each_time(seed: int) -> None:
    forgetful = SchedulingPolicy("dally", lambda _, setting: Forgetful(DallyRule(setting), setting.lease_s))
    remembering, asked = run(POLICIES["dally"], seed), run(forgetful, seed)
    assert remembering.stretches == asked.stretches
    assert remembering.finished == asked.finished


# Without a network all who have run stand by one key, and most of a size are not asked; in turn by number nobody is left out.
@pytest.mark.parametrize(
    "rules", [SimulationRules(), SimulationRules(submission_breaks_ties=False), SimulationRules(offers_of_events=False)]
)
@pytest.mark.parametrize("seed", range(4))
def test_who_would_refuse_for_longer_than_one_that_did_is_not_asked(seed: int, rules: SimulationRules) -> None:
    setting = replace(SETTING, network=FREE, rules=rules)
    sparing, asking = Recorded(True), Recorded(False)
    assert run(sparing.policy, seed, setting) == run(asking.policy, seed, setting)
    if rules.submission_breaks_ties:
        assert sparing.asked < asking.asked
    else:
        assert sparing.asked == asking.asked


class Recorded:
    """Dally that counts whom it asks, either of all that refuse or of the first alone."""

    def __init__(self, by_since: bool) -> None:
        self.asked = 0
        self._by_since = by_since
        self.policy = SchedulingPolicy("dally", lambda _, setting: Leased(self._rule(setting), setting.lease_s))

    def _rule(self, setting: Setting) -> DallyRule:
        rule = DallyRule(setting)
        rule.by_since, opens = self._by_since, rule.opens

        def counted(world: SimulatedWorld, task: SimulatedJob, level: Level) -> float:
            self.asked += 1
            return opens(world, task, level)

        rule.opens = counted  # type: ignore[method-assign]
        return rule


@pytest.mark.parametrize("policy", ["las", "dally", "gandiva"])
def test_what_happens_at_one_moment_happens_in_an_order_of_its_own_not_of_where_tasks_lie_in_memory(policy: str) -> None:
    small = [TraceJob(number, Milliseconds(0), Milliseconds(10_000_000), 1) for number in range(8)]
    large = TraceJob(8, Milliseconds(150_000), Milliseconds(1000), 8)
    outcome = simulate(
        [*small, large], ClusterState.of(ClusterShape.grid(1, 2, 4)), POLICIES[policy], levels, Setting(lease_s=100)
    )
    assert [each.number for each in outcome.stretches if each.end == 200_000] == list(range(8))


def run(policy: SchedulingPolicy, seed: int, setting: Setting = SETTING) -> SimulationResult:
    chance = random.Random(seed)
    times = [(chance.randrange(2000), chance.randrange(60, 600), chance.choice((1, 2, 3))) for _ in range(80)]
    jobs = [
        TraceJob(number, Milliseconds(1000 * submit), Milliseconds(1000 * duration), gpus, comm_ratio=0.5)
        for number, (submit, duration, gpus) in enumerate(times)
    ]
    return simulate(jobs, ClusterState.of(ClusterShape.grid(2, 2, 4)), policy, levels, setting)
