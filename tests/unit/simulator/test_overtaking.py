"""Who others pass too often gets GPUs kept, by the rule of the cluster. One rack of two machines of four GPUs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import Bug
from kompakt_simulator.cluster import ClusterShape, ClusterState, GpuSet
from kompakt_simulator.figures import violations_of
from kompakt_simulator.jobs import Milliseconds, SimulatedJob, TraceJob
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.simulation import SimulationResult, simulate
from kompakt_simulator.world import SimulatedWorld

LARGE = 99
STREAM = tuple((number, number * 400, 1000, 1, 0) for number in range(40))  # two or three of them run at any time


def run(*jobs: tuple[int, int, int, int, int], setting: Setting, machines: int = 2) -> SimulationResult:
    """Jobs as (number, submitted at, seconds, GPUs, priority)."""
    made = [TraceJob(n, Milliseconds(at * 1000), Milliseconds(s * 1000), gpus, priority=p) for n, at, s, gpus, p in jobs]
    outcome = simulate(made, ClusterState.of(ClusterShape.grid(1, machines, 4)), POLICIES["kompakt"], levels, setting)
    assert violations_of(outcome) == []
    return outcome


def starts(at_most: int, *more: tuple[int, int, int, int, int]) -> dict[int, float]:
    outcome = run(*STREAM, (LARGE, 500, 100, 8, 0), *more, setting=Setting(overtaken_at_most=at_most))
    return {done.job.number: done.start / 1000 for done in outcome.finished}


def test_a_job_without_a_place_is_passed_so_often_and_then_gets_what_comes_free() -> None:
    told = starts(3)
    assert [told[number] for number in (2, 3, 4)] == [800, 1200, 1600], "three pass"
    assert told[LARGE] == 2600, "when the last of them ends"
    assert told[5] == 2700, "which came at 2,000 and found free GPUs, kept for the large one"


def test_without_a_bound_it_starts_after_all_others() -> None:
    assert starts(1000)[LARGE] == STREAM[-1][1] + 1000


def test_nothing_is_kept_while_a_more_important_job_waits() -> None:
    told = starts(3, (50, 2100, 1000, 4, 1))
    assert told[50] == 2100
    assert told[LARGE] == 3100


def test_its_place_is_the_member_that_lacks_fewest_and_the_rest_stays_open_to_others() -> None:
    """Machine 0 is full for longer than machine 1, where job 3 is to sit; job 4 fits what is left on machine 0 at last."""
    jobs = (
        (0, 0, 9000, 4, 0),
        (1, 0, 3000, 1, 0),
        (2, 0, 3000, 1, 0),
        (3, 100, 10, 4, 0),
        (4, 200, 5000, 1, 0),
        (5, 300, 10, 2, 0),
    )
    told = {done.job.number: done.start / 1000 for done in run(*jobs, setting=Setting(overtaken_at_most=1)).finished}
    assert (told[4], told[3]) == (200, 5200), "job 4 passes once, and is the last to leave the machine"
    assert told[5] == 5210, "two GPUs are free there all the while"


def test_what_is_kept_for_one_job_is_given_to_no_other() -> None:
    world = SimulatedWorld(ClusterState.of(ClusterShape.grid(1, 1, 4)), Setting(), Knowledge.NONE)
    one, other = (SimulatedJob(TraceJob(n, Milliseconds(0), Milliseconds(9), 2), 0.0, Milliseconds(0), 9.0, 9.0) for n in (1, 2))
    world.keep(one, GpuSet(0b11))
    assert (world.open, world.open_to(other), world.open_to(one)) == (0b1100, 0b1100, 0b1111)
    with pytest.raises(Bug, match="are kept for another job"):
        world.assign(other, GpuSet(0b110))
    world.assign(one, GpuSet(0b11))
    assert world.open == 0b1100
    world.keep(None, GpuSet(0))
    assert world.open == 0b1100


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 900), st.integers(1, 12), st.integers(0, 1)), min_size=1, max_size=14),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([Knowledge.NONE, Knowledge.DECLARED]),
)
def test_everybody_ends_wherever_the_bound_lies(raw: list[tuple[int, int, int, int]], at_most: int, knowledge: Knowledge) -> None:
    jobs = [(number, *fields) for number, fields in enumerate(raw)]
    setting = replace(Setting(restart_s=3, knowledge=knowledge), overtaken_at_most=at_most)
    assert len(run(*jobs, setting=setting, machines=3).finished) == len(jobs)
