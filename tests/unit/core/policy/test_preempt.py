"""Who ends for whom: on small clusters every way to end gangs can be tried, and is."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import GpuMask, JobUid, NodeName, PodUid, mask_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import Gang, GpuRequest, Level, NodeState, PlacementPolicy, Plan, Snapshot, Worker
from kompakt_core.policy.delay import dally, kompakt, never_relax
from kompakt_core.policy.model import Timers
from kompakt_core.policy.place_or_wait import NO_DELAY, DelayConfig, accepted_levels
from kompakt_core.policy.preempt import NotBefore, PodHolding, PreemptionPlan, RunningGang, freed, preempt
from kompakt_core.topology.describe import read_description

MACHINE, RACK, BLOCK, CLUSTER = Level
RACKS = {"a": "r", "b": "r", "c": "s", "d": "s"}
Pods = dict[str, tuple[int, int]]  # node -> first GPU, how many


def runs(name: str, pods: Pods, priority: int = 0, since: float = 0, protected_until: float = 0) -> RunningGang:
    held = tuple(PodHolding(NodeName(node), mask_of(list(range(first, first + count)))) for node, (first, count) in pods.items())
    return RunningGang(JobUid(name), 1, priority, since, protected_until, held)


def cluster(running: Sequence[RunningGang], plain: Pods | None = None, nodes: str = "abcd") -> Snapshot:
    """DGX-1s in two racks, with the GPUs of these gangs and of plain pods taken."""
    taken = dict.fromkeys(nodes, 0)
    for pod in (pod for one in running for pod in one.pods):
        taken[pod.node] |= pod.gpus
    for node, (first, count) in (plain or {}).items():
        taken[node] |= mask_of(list(range(first, first + count)))
    states = (
        NodeState(NodeName(name), read_description("dgx1-v100", name), GpuMask(mask), {"kompakt.dev/rack": RACKS[name]})
        for name, mask in taken.items()
    )
    return Snapshot({state.name: state for state in states})


def gang(workers: int, gpus: int, **more: object) -> Gang:
    members = tuple(Worker(index, f"w-{index}", PodUid(f"uid-{index}"), gpus) for index in range(workers))
    return Gang(JobUid("urgent"), 1, members, GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE, sensitive=True), **more)  # type: ignore[arg-type]


def asked(
    snapshot: Snapshot,
    wanted: Gang,
    running: Sequence[RunningGang],
    priority: int = 10,
    patience: DelayConfig = NO_DELAY,
    now: float = 1000,
) -> PreemptionPlan | NotBefore | None:
    return preempt(snapshot, wanted, priority, running, accepted_levels(snapshot, wanted, patience, now, now), now)


def ended(answer: PreemptionPlan | NotBefore | None) -> list[str]:
    assert isinstance(answer, PreemptionPlan)
    return sorted(one.job_uid for one in answer.victims)


def test_a_gang_of_lower_priority_ends_and_the_waiting_one_sits_on_its_gpus() -> None:
    running = [runs("low", {"a": (0, 8)})]
    answer = asked(cluster(running, nodes="a"), gang(2, 4), running)
    assert ended(answer) == ["low"]
    assert isinstance(answer, PreemptionPlan)
    assert [seat.node for seat in answer.plan.seats] == ["a", "a"]


@pytest.mark.parametrize("priority", [10, 11])
def test_equal_or_higher_priority_never_ends(priority: int) -> None:
    running = [runs("other", {"a": (0, 8)}, priority)]
    assert asked(cluster(running, nodes="a"), gang(2, 4), running) is None


def test_nobody_ends_before_the_minimum_run_time_and_the_moment_is_told() -> None:
    running = [runs("young", {"a": (0, 4)}, protected_until=1200), runs("older", {"a": (4, 4)}, protected_until=1100)]
    snapshot = cluster(running, nodes="a")
    assert asked(snapshot, gang(1, 4), running) == NotBefore(1100)
    assert asked(snapshot, gang(2, 4), running) == NotBefore(1200)
    assert asked(snapshot, gang(2, 4), running, now=1199.9) == NotBefore(1200)
    assert ended(asked(snapshot, gang(2, 4), running, now=1200)) == ["older", "young"]


def test_nobody_ends_in_vain() -> None:
    """One-GPU gangs on four machines do not make room for eight GPUs where plain pods hold the rest."""
    running = [runs(f"one-{name}", {name: (0, 1)}) for name in "abcd"]
    assert asked(cluster(running, dict.fromkeys("abcd", (1, 1))), gang(1, 8), running) is None
    assert asked(cluster(running, dict.fromkeys("abcd", (1, 7))), gang(1, 2), running) is None


def test_the_lowest_priority_ends_first_then_the_fewest_then_the_youngest() -> None:
    running = [
        runs("important", {"a": (0, 8)}, priority=5),
        runs("half-1", {"b": (0, 4)}),
        runs("half-2", {"b": (4, 4)}),
        runs("old", {"c": (0, 8)}, since=100),
        runs("young", {"d": (0, 8)}, since=900),
    ]
    snapshot = cluster(running)
    assert ended(asked(snapshot, gang(1, 8), running)) == ["young"]
    assert ended(asked(snapshot, gang(1, 8), running[:4])) == ["old"]
    assert ended(asked(snapshot, gang(1, 8), running[:3])) == ["half-1", "half-2"], "two of low priority rather than one above"
    assert ended(asked(snapshot, gang(1, 8), running[:1])) == ["important"]


def test_one_victim_is_found_where_younger_ones_would_do_together() -> None:
    running = [runs("big", {"a": (0, 4)}), *(runs(f"tiny-{i}", {"a": (4 + i, 1)}, since=900) for i in range(4))]
    assert ended(asked(cluster(running, nodes="a"), gang(1, 4), running)) == ["big"]


def test_a_gang_spread_over_machines_ends_whole_and_nobody_beside_it() -> None:
    running = [runs("wide", {"a": (0, 8), "b": (0, 8)}), runs("other", {"c": (0, 8), "d": (0, 8)}, priority=3)]
    answer = asked(cluster(running), gang(2, 8), running)
    assert ended(answer) == ["wide"]
    assert isinstance(answer, PreemptionPlan)
    assert {seat.node for seat in answer.plan.seats} == {"a", "b"}


def test_only_a_level_that_the_policy_accepts_is_worth_a_victim() -> None:
    """Two gangs of one machine each, in two racks, beside plain pods: what they free joins no machine."""
    running = [runs("x", {"a": (0, 4)}), runs("y", {"c": (0, 4)})]
    split = cluster(running, {"a": (4, 4), "b": (0, 8), "c": (4, 4), "d": (0, 8)})
    assert ended(asked(split, gang(2, 4), running)) == ["x", "y"], "NoWait takes any level"
    assert asked(split, gang(2, 4), running, patience=DelayConfig(never_relax)) is None
    assert asked(split, gang(2, 4), running, patience=DelayConfig(dally, Timers(600, 1800, 3600))) is None
    slow = DelayConfig(kompakt, slowdown={MACHINE: 0.025, RACK: 0.5, CLUSTER: 2.0})
    assert asked(split, gang(2, 4), running, patience=slow) is None
    assert asked(split, gang(2, 4, required_level=RACK), running) is None


def test_of_many_small_gangs_only_as_many_end_as_are_needed_the_youngest() -> None:
    running = [runs(f"tiny-{i}", {"a": (i, 1)}, since=i) for i in range(8)]
    assert ended(asked(cluster(running, nodes="a"), gang(3, 1), running)) == ["tiny-5", "tiny-6", "tiny-7"]


def test_no_moment_is_told_where_only_an_unaccepted_level_would_be_free_then() -> None:
    running = [runs("x", {"a": (0, 4)}, protected_until=2000), runs("y", {"c": (0, 4)}, protected_until=2000)]
    split = cluster(running, {"a": (4, 4), "b": (0, 8), "c": (4, 4), "d": (0, 8)})
    assert asked(split, gang(2, 4), running) == NotBefore(2000)
    assert asked(split, gang(2, 4), running, patience=DelayConfig(never_relax)) is None


def test_a_cluster_without_blocks_is_no_obstacle_for_a_gang_that_waits_for_a_rack() -> None:
    running = [runs("rack", {"a": (0, 8), "b": (0, 8)}), runs("x", {"c": (0, 8)}), runs("y", {"d": (0, 8)}, priority=1)]
    answer = asked(cluster(running), gang(2, 8), running, patience=DelayConfig(dally, Timers(600, 1800, 3600)))
    assert ended(answer) == ["rack"]


def test_a_narrow_level_is_taken_where_it_costs_as_many_victims() -> None:
    running = [runs("here", {"a": (0, 8)}), runs("there", {"b": (0, 8)})]
    snapshot = cluster(running, {"a": (0, 0)}, nodes="ab")
    answer = asked(snapshot, gang(2, 4), running)
    assert isinstance(answer, PreemptionPlan)
    assert (len(answer.victims), answer.plan.level) == (1, MACHINE)


def test_sick_gpus_are_not_given_away() -> None:
    running = [runs("low", {"a": (0, 8)})]
    snapshot = cluster(running, nodes="a")
    state = snapshot.nodes[NodeName("a")]
    assert state.graph is not None
    unhealthy = replace(state.graph, gpus=(replace(state.graph.gpus[0], health="Unhealthy"), *state.graph.gpus[1:]))
    snapshot = Snapshot({state.name: replace(state, graph=unhealthy)})
    assert freed(snapshot, running).nodes[state.name].taken == 1
    assert asked(snapshot, gang(1, 8), running) is None


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Snapshot, list[RunningGang], Gang]:
    """Gangs and plain pods on at most four machines."""
    nodes = "abcd"[: draw(st.integers(1, 4))]
    used = dict.fromkeys(nodes, 0)
    plain: Pods = {}
    running: list[RunningGang] = []
    for node in nodes:
        count = draw(st.integers(0, 3))
        plain[node], used[node] = (0, count), count
    for number in range(draw(st.integers(0, 6))):
        pods: Pods = {}
        for node in draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=2)):
            count = min(draw(st.sampled_from((1, 2, 4, 8))), 8 - used[node])
            if count:
                pods[node], used[node] = (used[node], count), used[node] + count
        if pods:
            since = draw(st.integers(0, 3))
            running.append(runs(f"g{number}", pods, draw(st.integers(0, 4)), since, since + draw(st.integers(0, 4))))
    workers, gpus = draw(st.sampled_from(((1, 1), (1, 8), (2, 4), (2, 8), (3, 2), (4, 4))))
    return cluster(running, plain, nodes), running, gang(workers, gpus)


def places(snapshot: Snapshot, wanted: Gang) -> bool:
    return isinstance(plan_gang(snapshot, wanted), Plan)


@settings(max_examples=50, deadline=None)
@given(worlds(), st.integers(0, 4), st.integers(0, 6))
def test_whatever_is_decided_keeps_the_rules(world: tuple[Snapshot, list[RunningGang], Gang], priority: int, now: int) -> None:
    snapshot, running, wanted = world
    if places(snapshot, wanted):
        return
    answer = asked(snapshot, wanted, running, priority, now=now)
    lower = [one for one in running if one.priority < priority]
    ready = [one for one in lower if one.protected_until <= now]
    subsets = list(chain.from_iterable(combinations(ready, count) for count in range(1, len(ready) + 1)))
    helping = [each for each in subsets if places(freed(snapshot, each), wanted)]
    if not helping:
        assert isinstance(answer, NotBefore) == places(freed(snapshot, lower), wanted)
        return
    assert isinstance(answer, PreemptionPlan)
    assert set(answer.victims) <= set(ready)
    assert plan_gang(freed(snapshot, answer.victims), wanted) == answer.plan, "it really fits, and there"
    assert not any(set(each) < set(answer.victims) for each in helping), "none could be spared"
    least = min(max(one.priority for one in each) for each in helping)
    assert max(one.priority for one in answer.victims) == least
    fewest = min(len(each) for each in helping if max(one.priority for one in each) == least)
    if fewest <= 2:
        assert len(answer.victims) == fewest


@settings(max_examples=25, deadline=None)
@given(worlds(), st.integers(1, 4))
def test_the_moment_told_is_the_first_at_which_somebody_may_end(
    world: tuple[Snapshot, list[RunningGang], Gang], priority: int
) -> None:
    snapshot, running, wanted = world
    if places(snapshot, wanted):
        return
    answer = asked(snapshot, wanted, running, priority, now=0)
    if isinstance(answer, NotBefore):
        assert isinstance(asked(snapshot, wanted, running, priority, now=answer.at), PreemptionPlan)
        assert not isinstance(asked(snapshot, wanted, running, priority, now=answer.at - 0.5), PreemptionPlan)


@settings(max_examples=25, deadline=None)
@given(worlds(), st.integers(0, 4), st.randoms())
def test_the_answer_depends_on_no_order(world: tuple[Snapshot, list[RunningGang], Gang], priority: int, random: object) -> None:
    snapshot, running, wanted = world
    shuffled = list(running)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert asked(snapshot, wanted, running, priority) == asked(snapshot, wanted, shuffled, priority)
