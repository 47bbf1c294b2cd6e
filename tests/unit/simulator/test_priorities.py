"""Priorities of our own CSV: policy kompakt goes by them as the cluster does, all other policies know none."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.figures import violations_of
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES, SchedulingPolicy
from kompakt_simulator.schedulers.kompakt import KompaktScheduler
from kompakt_simulator.schedulers.preemption import MIN_RUN_S
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.simulation import SimulationResult, simulate
from kompakt_simulator.world import Instant, SimulatedWorld

HOUR = 3600
NETWORK = Network({Level.MACHINE: 0.0, Level.RACK: 1.0, Level.CLUSTER: 4.0})


def job(number: int, submit_s: int, duration_s: int, gpus: int, priority: int = 0, ratio: float = 0.0) -> TraceJob:
    times = Milliseconds(submit_s * 1000), Milliseconds(duration_s * 1000)
    return TraceJob(number, *times, gpus, comm_ratio=ratio, priority=priority)


def run(
    *jobs: TraceJob, policy: SchedulingPolicy = POLICIES["kompakt"], racks: int = 1, setting: Setting | None = None
) -> SimulationResult:
    setting = setting or Setting(network=NETWORK)
    outcome = simulate(jobs, ClusterState.of(ClusterShape.grid(racks, 2, 4)), policy, levels, setting)
    assert violations_of(outcome) == []
    return outcome


def starts(outcome: SimulationResult) -> dict[int, float]:
    return {done.job.number: done.start / 1000 for done in outcome.finished}


def stopped(outcome: SimulationResult) -> set[int]:
    """Jobs with more than one stretch."""
    numbers = [each.number for each in outcome.stretches]
    return {number for number in numbers if numbers.count(number) > 1}


@pytest.mark.parametrize(
    ("jobs", "ended", "begin"),
    [
        ((job(0, 0, 9 * HOUR, 8), job(1, 1000, HOUR, 8, priority=1)), {0}, 1000 + 8),
        ((job(0, 0, 9 * HOUR, 8), job(1, 60, HOUR, 8, priority=1)), {0}, MIN_RUN_S + 8),
        ((job(0, 0, HOUR, 8, priority=3), job(1, 1000, HOUR, 8, priority=3)), set(), HOUR),
        ((job(0, 0, HOUR, 4, priority=1), job(2, 0, HOUR, 4), job(1, 1000, HOUR, 4, priority=2)), {2}, 1000 + 4),
        ((job(0, 0, HOUR, 2), job(2, 0, HOUR, 6, priority=2), job(1, 1000, HOUR, 4, priority=1)), set(), HOUR),
        ((job(0, 0, 90 * HOUR, 8, priority=1), *(job(n, n * HOUR, 60, 8) for n in range(1, 9))), set(), 90 * HOUR),
    ],
    ids=[
        "one of lower priority, and it starts when its checkpoint is written",
        "nobody before its minimum run time, and then at once",
        "equals never",
        "the least important of those that make room",
        "nobody where it would not make room",
        "nobody for less important ones, however long it ran",
    ],
)
def test_who_is_stopped_for_job_1(jobs: tuple[TraceJob, ...], ended: set[int], begin: float) -> None:
    outcome = run(*jobs)
    assert (stopped(outcome), starts(outcome)[1]) == (ended, begin)


def test_a_place_that_the_job_would_not_take_is_no_reason_to_stop_anybody() -> None:
    """The two that may be stopped sit on different machines: that gives a rack, and this job insists on a machine for now."""
    halves = [job(number, number, 9 * HOUR, 2, priority=number % 2 * 5) for number in range(4)]
    outcome = run(*halves, job(9, 1000, HOUR, 4, priority=2, ratio=0.5))
    assert starts(outcome)[9] == 1000 + HOUR * 0.5 + 2
    assert stopped(outcome) == {0, 2}


def test_who_is_served_first_is_a_matter_of_priority() -> None:
    waiting = [job(number, 10 * number, 100, 8, priority=number) for number in (1, 2, 3)]
    told = starts(run(job(0, 0, 200, 8, priority=9), *waiting))
    assert told[3] < told[2] < told[1]


JOBS = st.lists(
    st.tuples(st.integers(0, 900), st.integers(1, 900), st.integers(1, 16), st.integers(-1, 2)), min_size=1, max_size=12
)


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"kompakt"}))
@settings(deadline=None, max_examples=5)
@given(JOBS)
def test_other_policies_know_no_priorities(policy: str, raw: list[tuple[int, int, int, int]]) -> None:
    jobs = [job(number, *fields) for number, fields in enumerate(raw)]
    plain = [dataclasses.replace(one, priority=0) for one in jobs]
    told = [
        [(each.number, each.start, each.gpus) for each in run(*each, policy=POLICIES[policy]).stretches] for each in (jobs, plain)
    ]
    assert told[0] == told[1]


@settings(deadline=None, max_examples=30)
@given(JOBS, st.integers(-3, 3), st.sampled_from([Knowledge.NONE, Knowledge.DECLARED]))
def test_one_priority_for_all_is_none(raw: list[tuple[int, int, int, int]], priority: int, knowledge: Knowledge) -> None:
    setting = Setting(restart_s=3, network=NETWORK, knowledge=knowledge)
    alike = [[job(number, *fields[:3], each, 0.5) for number, fields in enumerate(raw)] for each in (0, priority)]
    told = [run(*jobs, racks=2, setting=setting).stretches for jobs in alike]
    assert told[0] == told[1]


class Watched(KompaktScheduler):
    """After each step nobody waits without a place while enough less important jobs could end for it."""

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
        super().step(world, instant)
        for entries in self._queue.by_size.values():
            for *_, task in entries:
                lower = [one for one in world.running.values() if one.job.priority < task.job.priority]
                ready = [one for one in lower if world.now - one.begin >= MIN_RUN_S * 1000]
                room = world.open.bit_count()
                assert room >= task.gpus or room + sum(one.gpus for one in ready) < task.gpus

    # Without a network any place is taken at once, so that this is all there is to it.


@settings(deadline=None, max_examples=30)
@given(JOBS, st.sampled_from([0, 7]))
def test_nobody_waits_in_vain_and_everybody_ends(raw: list[tuple[int, int, int, int]], checkpoint: int) -> None:
    policy = dataclasses.replace(POLICIES["kompakt"], scheduler=lambda _place, _setting: Watched())
    setting = Setting(restart_s=3, checkpoint_s_per_gpu=checkpoint)
    jobs = [job(number, *fields) for number, fields in enumerate(raw)]
    outcome = run(*jobs, policy=policy, racks=2, setting=setting)
    assert sorted(done.job.number for done in outcome.finished) == [one.number for one in jobs]
