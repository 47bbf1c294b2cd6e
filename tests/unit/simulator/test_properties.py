"""What must hold of every policy in every world: invariants, plain oracles, and that nobody peeks at hidden durations."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import Bug, InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState, GpuSet
from kompakt_simulator.figures import violations_of
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES, SchedulingPolicy
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.simulation import SimulationResult, simulate

NETWORK = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 8}, unnamed=(0.6, 0.3, 0.06))
COSTLY = Setting(restart_s=3, checkpoint_s_per_gpu=1, lease_s=20, network=NETWORK)
SHAPE = ClusterShape.grid(2, 2, 4)
JOBS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 90), st.integers(1, 17)), min_size=1, max_size=12)


def job(number: int, submit_s: int, duration_s: int, gpus: int) -> TraceJob:
    return TraceJob(number, Milliseconds(submit_s * 1000), Milliseconds(duration_s * 1000), gpus)


def run(jobs: list[TraceJob], policy: str, placement: str = "levels", setting: Setting = COSTLY) -> SimulationResult:
    return simulate(jobs, ClusterState.of(SHAPE), POLICIES[policy], PLACEMENTS[placement], setting)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(deadline=None, max_examples=30)
@given(JOBS, st.sampled_from(sorted(PLACEMENTS)), st.sampled_from([0.0, 0.7]))
def test_every_job_that_fits_ends_once_and_no_rule_is_broken(
    policy: str, raw: list[tuple[int, int, int]], placement: str, interval: float
) -> None:
    jobs = [job(number, *fields) for number, fields in enumerate(raw)]
    setting = Setting(restart_s=3, lease_s=20, checkpoint_interval_s=interval, network=NETWORK)
    outcome = run(jobs, policy, placement, setting)
    assert sorted(done.job.number for done in outcome.finished) == [each.number for each in jobs if each.gpus <= 16]
    assert [each.number for each in outcome.dropped] == [j.number for j in sorted(jobs, key=lambda j: j.submit) if j.gpus > 16]
    assert violations_of(outcome) == []
    assert all(done.comm > -1 and done.restart >= 0 for done in outcome.finished)


@pytest.mark.parametrize("policy", sorted(name for name in POLICIES if POLICIES[name].needs is Knowledge.NONE))
@settings(deadline=None, max_examples=30)
@given(JOBS, st.randoms(use_true_random=False))
def test_hidden_durations_change_no_decision_before_a_job_ends(
    policy: str, raw: list[tuple[int, int, int]], chance: object
) -> None:
    durations = [fields[1] for fields in raw]
    chance.shuffle(durations)  # type: ignore[attr-defined]
    worlds = [
        [job(number, submit, duration, gpus) for number, (submit, duration, gpus) in enumerate(each)]
        for each in (raw, [(submit, other, gpus) for (submit, _, gpus), other in zip(raw, durations, strict=True)])
    ]
    told = [run(jobs, policy) for jobs in worlds]
    first = min((done.end for outcome in told for done in outcome.finished), default=0)
    starts = [{(each.number, each.start, each.gpus) for each in outcome.stretches if each.start < first} for outcome in told]
    assert starts[0] == starts[1]


@settings(deadline=None, max_examples=60)
@given(JOBS, st.sampled_from(["fifo", "fifo-skip", "sjf"]), st.sampled_from(sorted(PLACEMENTS)))
def test_the_queue_agrees_with_trying_every_job_in_turn(raw: list[tuple[int, int, int]], policy: str, placement: str) -> None:
    jobs = [job(number, *fields) for number, fields in enumerate(raw) if fields[2] <= 16]
    outcome = run(jobs, policy, placement, Setting())
    assert {done.job.number: (done.start, done.end) for done in outcome.finished} == plainly(policy, jobs, placement)


def plainly(policy: str, jobs: list[TraceJob], placement: str) -> dict[int, tuple[int, int]]:
    """The rules as written, second by second, with one sorted list and no short cut."""
    world, queue, running = ClusterState.of(SHAPE), list[TraceJob](), dict[int, tuple[int, int, GpuSet]]()
    ended: dict[int, tuple[int, int]] = {}
    now = 0
    while len(ended) < len(jobs):
        for number, (start, end, gpus) in sorted(running.items()):
            if end == now:
                del running[number]
                world, ended[number] = world.with_freed(gpus), (start, end)
        queue += [each for each in jobs if each.submit == now]
        queue.sort(key=lambda each: (each.duration if policy == "sjf" else each.submit, each.submit, each.number))
        for each in list(queue):
            chosen = PLACEMENTS[placement](world, each.gpus)
            if chosen is not None:
                world, running[each.number] = world.with_taken(chosen), (now, now + each.duration, chosen)
                queue.remove(each)
            elif policy != "fifo-skip":
                break
        now += 1000
    return ended


@settings(deadline=None, max_examples=100)
@given(JOBS)
def test_srtf_agrees_with_sorting_everybody_anew_every_second(raw: list[tuple[int, int, int]]) -> None:
    jobs = [job(number, *fields) for number, fields in enumerate(raw) if fields[2] <= 16]
    outcome = run(jobs, "srtf", "count", Setting())
    assert {done.job.number: int(done.end) for done in outcome.finished} == shortest_plainly(jobs)


def shortest_plainly(jobs: list[TraceJob]) -> dict[int, int]:
    left = {each.number: int(each.duration) for each in jobs}
    ended: dict[int, int] = {}
    now = 0
    while len(ended) < len(jobs):
        free = 16
        present = [each for each in jobs if each.submit <= now and each.number not in ended]
        for each in sorted(present, key=lambda each: (left[each.number], each.submit, each.number)):
            if each.gpus <= free:
                free -= each.gpus
                left[each.number] -= 1000
                if not left[each.number]:
                    ended[each.number] = now + 1000
        now += 1000
    return ended


def test_the_order_in_which_jobs_are_given_does_not_matter() -> None:
    jobs = (job(0, 0, 50, 12), job(1, 0, 50, 8), job(2, 0, 40, 8), job(3, 1, 10, 4))
    for policy in POLICIES:
        ends = {
            tuple(sorted((done.job.number, done.end) for done in run(list(order), policy).finished))
            for order in permutations(jobs)
        }
        assert len(ends) == 1


def test_a_policy_that_may_not_know_durations_is_stopped_when_it_asks() -> None:
    asks = SchedulingPolicy("asks", POLICIES["sjf"].scheduler)
    with pytest.raises(Bug, match="without knowledge of durations"):
        simulate([job(0, 0, 1, 1)], ClusterState.of(SHAPE), asks, PLACEMENTS["count"])
    with pytest.raises(InvalidInput, match="policy sjf orders jobs by their durations; it needs --knowledge declared or more"):
        run([job(0, 0, 1, 1)], "sjf", setting=Setting(knowledge=Knowledge.NONE))
