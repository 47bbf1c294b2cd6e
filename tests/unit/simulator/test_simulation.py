"""The rules of the event loop on worlds small enough to follow by hand."""

import pytest

from kompakt_core.errors import Bug
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.machines import machine
from kompakt_simulator.cluster import ClusterState, GpuSet
from kompakt_simulator.figures import ring_share
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.placements import PLACEMENTS, Planned, consolidated, count
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import FinishedJob, SimulationResult, simulate


def job(number: int, submit: int, duration: int, gpus: int) -> TraceJob:
    return TraceJob(number, Milliseconds(submit), Milliseconds(duration), gpus)


def times(outcome: SimulationResult) -> dict[int, tuple[int, int]]:
    return {done.job.number: (done.start, done.end) for done in outcome.finished}


def run(policy: str, *jobs: TraceJob, machines: int = 1, gpus: int = 4, placement: str = "count") -> dict[int, tuple[int, int]]:
    return times(simulate(jobs, ClusterState.empty(machines, gpus), POLICIES[policy], PLACEMENTS[placement]))


OVERTAKEN = (job(0, 0, 10, 3), job(1, 1, 10, 2), job(2, 2, 3, 1))
LONG_FIRST = (job(0, 0, 10, 4), job(1, 1, 7, 4), job(2, 2, 5, 4), job(3, 3, 5, 4))


@pytest.mark.parametrize(
    ("policy", "jobs", "expected"),
    [
        ("fifo", (job(0, 0, 10, 4), job(1, 10, 5, 4)), {0: (0, 10), 1: (10, 15)}),
        ("fifo", OVERTAKEN, {0: (0, 10), 1: (10, 20), 2: (10, 13)}),
        ("fifo-skip", OVERTAKEN, {0: (0, 10), 1: (10, 20), 2: (2, 5)}),
        ("sjf", LONG_FIRST, {0: (0, 10), 2: (10, 15), 3: (15, 20), 1: (20, 27)}),
        ("srtf", (job(0, 0, 10, 4), job(1, 4, 2, 4)), {0: (0, 12), 1: (4, 6)}),
    ],
    ids=[
        "a job that ends frees its GPUs for one that arrives at the same instant",
        "fifo blocks behind its head",
        "fifo-skip does not",
        "sjf takes the shortest first, and ties end on the job number",
        "srtf stops a long job for a short one and loses no work",
    ],
)
def test_order(policy: str, jobs: tuple[TraceJob, ...], expected: dict[int, tuple[int, int]]) -> None:
    assert run(policy, *jobs) == expected


def test_jobs_larger_than_the_cluster_are_dropped_and_said_to_be() -> None:
    outcome = simulate([job(0, 0, 1, 5), job(1, 0, 1, 4)], ClusterState.empty(1, 4), POLICIES["fifo"], count)
    assert [dropped.number for dropped in outcome.dropped] == [0]
    assert times(outcome) == {1: (0, 1)}


def test_consolidated_waits_where_any_gpus_would_do() -> None:
    jobs = (job(0, 0, 10, 3), job(1, 0, 10, 3), job(2, 1, 5, 2))
    assert run("fifo", *jobs, machines=2) == {0: (0, 10), 1: (0, 10), 2: (1, 6)}
    assert run("fifo", *jobs, machines=2, placement="consolidated") == {0: (0, 10), 1: (0, 10), 2: (10, 15)}


def cluster(*free: str) -> ClusterState:
    """One text per machine, GPU 0 first, "o" is a free GPU."""
    world = ClusterState.empty(len(free), len(free[0]))
    masks = [sum(1 << index for index, letter in enumerate(text) if letter == "o") for text in free]
    return ClusterState.of(world.shape, GpuSet(sum(mask << i * len(free[0]) for i, mask in enumerate(masks))))


def given_away(before: ClusterState, gpus: GpuSet | None) -> list[int]:
    """How many GPUs of each machine were given."""
    assert gpus is not None
    after = before.with_taken(gpus)
    return [before.free_of(m).bit_count() - after.free_of(m).bit_count() for m in range(before.machines)]


@pytest.mark.parametrize(
    ("free", "gpus", "expected"),
    [
        (("oooo", "xxoo", "xooo"), 2, [0, 2, 0]),  # the fullest that still holds it
        (("oooo", "xxoo", "xooo"), 3, [0, 0, 3]),
        (("xxoo", "oooo", "xxoo"), 2, [2, 0, 0]),  # lowest index on ties
        (("xooo", "oooo", "oooo"), 8, [0, 4, 4]),  # whole machines are wholly empty ones
        (("xooo", "oooo", "oooo"), 6, [2, 4, 0]),  # the remainder may share a machine
        (("oooo", "oooo", "xxxx"), 6, [4, 2, 0]),  # or open another empty one
    ],
)
def test_consolidated_chooses(free: tuple[str, ...], gpus: int, expected: list[int]) -> None:
    world = cluster(*free)
    assert given_away(world, consolidated(world, gpus)) == expected


@pytest.mark.parametrize(("free", "gpus"), [(("xooo", "xooo"), 4), (("oooo", "xxxo"), 6), (("xxxx", "xxxx"), 1)])
def test_consolidated_refuses(free: tuple[str, ...], gpus: int) -> None:
    assert consolidated(cluster(*free), gpus) is None


def test_count_takes_the_lowest_free_gpus() -> None:
    assert count(cluster("xoxo", "oooo"), 3) == 0b0001_1010


@pytest.mark.parametrize("gpus", range(1, 17))
def test_planned_gives_what_the_planner_plans_and_refuses_what_it_refuses(gpus: int) -> None:
    graph = machine("dgx1-v100")
    world = cluster("xxoooooo", "oooooooo")
    chosen = Planned(graph)(world, gpus)
    if gpus > 14:
        assert chosen is None
        return
    assert sum(given_away(world, chosen)) == gpus
    if 2 <= gpus <= 6:
        share = ring_share(finished(gpus, chosen), world, graph)
        assert share == 1.0


def finished(gpus: int, chosen: GpuSet | None) -> SimulationResult:
    assert chosen is not None
    return SimulationResult((FinishedJob(job(0, 0, 1, gpus), Milliseconds(0), Milliseconds(1), chosen),), ())


def test_the_share_of_a_ring_is_that_of_the_best_and_0_for_a_spread_job() -> None:
    graph, world = machine("dgx1-v100"), ClusterState.empty(2, 8)
    table = table_for(graph, Pattern.RING)
    pairs = {mask: ring_share(finished(2, GpuSet(mask << 8)), world, graph) for mask in (0b11, 0b1001, 0b100001)}
    best = table.value(table.best(0xFF, 2))
    assert pairs == {mask: table.value(mask) / best for mask in pairs}
    assert ring_share(finished(2, GpuSet(0b1_1000_0000)), world, graph) == 0
    assert ring_share(finished(1, GpuSet(0b1)), world, graph) is None


@pytest.mark.parametrize(
    ("gives", "said"),
    [(0b11, "given away twice"), (0b1, "needs 2 GPUs holds 1"), (None, "waiting on an empty cluster")],
    ids=["GPUs twice", "a part", "nothing on an empty cluster"],
)
def test_a_placement_that_gives_what_it_must_not_is_caught(gives: int | None, said: str) -> None:
    given = None if gives is None else GpuSet(gives)
    with pytest.raises(Bug, match=said):
        simulate([job(0, 0, 9, 2), job(1, 1, 9, 2)], ClusterState.empty(1, 4), POLICIES["fifo"], lambda _, __: given)
