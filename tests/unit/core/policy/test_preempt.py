"""Who ends for whom: on small clusters every way to end gangs can be tried, and is."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import JobUid, NodeName, indices_of, mask_of
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import Gang, Level, Plan, Snapshot
from kompakt_core.policy.delay import dally, kompakt, never_relax
from kompakt_core.policy.model import Timers
from kompakt_core.policy.place_or_wait import NO_DELAY, DelayConfig, accepted_levels
from kompakt_core.policy.preempt import NotBefore, PodHolding, PreemptionPlan, RunningGang, freed, preempt
from tests.support.core.gangs import cluster as cluster_of
from tests.support.core.gangs import gang, node

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
    for name, (first, count) in (plain or {}).items():
        taken[name] |= mask_of(list(range(first, first + count)))
    labels = {name: {"kompakt.dev/rack": RACKS[name]} for name in taken}
    return cluster_of(*(node(name, taken=indices_of(mask), labels=labels[name]) for name, mask in taken.items()))


def asked(
    snapshot: Snapshot,
    wanted: Gang,
    running: Sequence[RunningGang],
    priority: int = 10,
    patience: DelayConfig = NO_DELAY,
    now: float = 1000,
) -> PreemptionPlan | NotBefore | None:
    return preempt(snapshot, wanted, priority, running, accepted_levels(snapshot, wanted, patience, now, now), now)


ONE = [runs("low", {"a": (0, 8)})]
YOUNG = [runs("young", {"a": (0, 4)}, protected_until=1200), runs("older", {"a": (4, 4)}, protected_until=1100)]
SINGLES = [runs(f"one-{name}", {name: (0, 1)}) for name in "abcd"]
RANKED = [
    runs("important", {"a": (0, 8)}, priority=5),
    *(runs(f"half-{number}", {"b": (4 * number, 4)}) for number in (1, 0)),
    runs("old", {"c": (0, 8)}, since=100),
    runs("young", {"d": (0, 8)}, since=900),
]
TINY = [runs(f"tiny-{i}", {"a": (i, 1)}, since=i) for i in range(8)]
WIDE = [runs("wide", {"a": (0, 8), "b": (0, 8)}), runs("other", {"c": (0, 8), "d": (0, 8)}, priority=3)]
RACK_OR_TWO = [runs("rack", {"a": (0, 8), "b": (0, 8)}), runs("x", {"c": (0, 8)}), runs("y", {"d": (0, 8)}, priority=1)]
# One gang on a machine of each rack, beside plain pods: what they free joins no machine.
APART, PLAIN = [runs("x", {"a": (0, 4)}), runs("y", {"c": (0, 4)})], {"a": (4, 4), "b": (0, 8), "c": (4, 4), "d": (0, 8)}
LATER = [replace(one, protected_until=2000) for one in APART]
WAITS = DelayConfig(dally, Timers(600, 1800, 3600))
SLOW = DelayConfig(kompakt, slowdown={MACHINE: 0.025, RACK: 0.5, CLUSTER: 2.0})
BIG = [runs("big", {"a": (0, 4)}), *(runs(f"tiny-{i}", {"a": (4 + i, 1)}, since=900) for i in range(4))]
TWO = gang(2, 4)

VICTIMS: dict[str, tuple[Snapshot, Sequence[RunningGang], Gang, dict[str, Any], Sequence[str] | NotBefore | None]] = {
    "a gang of lower priority ends": (cluster(ONE, nodes="a"), ONE, TWO, {}, ["low"]),
    "equal priority never ends": (cluster(ONE, nodes="a"), ONE, TWO, {"priority": 0}, None),
    "higher priority never ends": (cluster(ONE, nodes="a"), ONE, TWO, {"priority": -1}, None),
    "nobody ends before the minimum run time": (cluster(YOUNG, nodes="a"), YOUNG, gang(1, 4), {}, NotBefore(1100)),
    "where two must end the later moment is told": (cluster(YOUNG, nodes="a"), YOUNG, TWO, {}, NotBefore(1200)),
    "until it has come": (cluster(YOUNG, nodes="a"), YOUNG, TWO, {"now": 1199.9}, NotBefore(1200)),
    "then both end": (cluster(YOUNG, nodes="a"), YOUNG, TWO, {"now": 1200}, ["older", "young"]),
    "nobody ends in vain for eight GPUs": (cluster(SINGLES, dict.fromkeys("abcd", (1, 1))), SINGLES, gang(1, 8), {}, None),
    "nobody ends in vain for two GPUs": (cluster(SINGLES, dict.fromkeys("abcd", (1, 7))), SINGLES, gang(1, 2), {}, None),
    "of the lowest priority the youngest of the fewest": (cluster(RANKED), RANKED, gang(1, 8), {}, ["young"]),
    "then the older": (cluster(RANKED), RANKED[:4], gang(1, 8), {}, ["old"]),
    "two of low priority rather than one above": (cluster(RANKED), RANKED[:3], gang(1, 8), {}, ["half-0", "half-1"]),
    "the one above at last": (cluster(RANKED), RANKED[:1], gang(1, 8), {}, ["important"]),
    "one victim is found where younger ones would do together": (
        cluster(BIG, nodes="a"), BIG, gang(1, 4), {}, ["big"],
    ),
    "a gang spread over machines ends whole and nobody beside it": (cluster(WIDE), WIDE, gang(2, 8), {}, ["wide"]),
    "of many small gangs as many as are needed, the youngest": (
        cluster(TINY, nodes="a"), TINY, gang(3, 1), {}, ["tiny-5", "tiny-6", "tiny-7"],
    ),
    "no-wait takes any level": (cluster(APART, PLAIN), APART, TWO, {}, ["x", "y"]),
    "never-relax accepts the best level only": (cluster(APART, PLAIN), APART, TWO, {"patience": DelayConfig(never_relax)}, None),
    "timers accept no wider level yet": (cluster(APART, PLAIN), APART, TWO, {"patience": WAITS}, None),
    "nor does kompakt": (cluster(APART, PLAIN), APART, TWO, {"patience": SLOW}, None),
    "nor a gang that requires a rack": (cluster(APART, PLAIN), APART, gang(2, 4, required_level=RACK), {}, None),
    "a moment is told for a level that is accepted": (cluster(APART, PLAIN), LATER, TWO, {}, NotBefore(2000)),
    "no moment is told for one that is not": (
        cluster(APART, PLAIN), LATER, TWO, {"patience": DelayConfig(never_relax)}, None,
    ),
    "a cluster without blocks is no obstacle for a gang that waits for a rack": (
        cluster(RACK_OR_TWO), RACK_OR_TWO, gang(2, 8), {"patience": WAITS}, ["rack"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("snapshot", "running", "wanted", "told", "expected"), VICTIMS.values(), ids=VICTIMS)
def test_who_ends(
    snapshot: Snapshot,
    running: Sequence[RunningGang],
    wanted: Gang,
    told: dict[str, Any],
    expected: Sequence[str] | NotBefore | None,
) -> None:
    answer = asked(snapshot, wanted, running, **told)
    if isinstance(answer, PreemptionPlan):
        assert sorted(one.job_uid for one in answer.victims) == expected
        freed_nodes = {pod.node for one in answer.victims for pod in one.pods}
        assert {seat.node for seat in answer.plan.seats} <= freed_nodes, "it sits where they sat"
    else:
        assert answer == expected


def test_a_narrow_level_is_taken_where_it_costs_as_many_victims() -> None:
    running = [runs("here", {"a": (0, 8)}), runs("there", {"b": (0, 8)})]
    answer = asked(cluster(running, nodes="ab"), TWO, running)
    assert isinstance(answer, PreemptionPlan)
    assert (len(answer.victims), answer.plan.level) == (1, MACHINE)


def test_unhealthy_gpus_are_not_given_away() -> None:
    snapshot = cluster(ONE, nodes="a")
    state = snapshot.nodes[NodeName("a")]
    assert state.graph is not None
    unhealthy = replace(state.graph, gpus=(replace(state.graph.gpus[0], health="Unhealthy"), *state.graph.gpus[1:]))
    snapshot = Snapshot({state.name: replace(state, graph=unhealthy)})
    assert freed(snapshot, ONE).nodes[state.name].taken == 1
    assert asked(snapshot, gang(1, 8), ONE) is None


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Snapshot, list[RunningGang], Gang]:
    """Gangs and plain pods on at most four machines."""
    nodes = "abcd"[: draw(st.integers(1, 4))]
    used = dict.fromkeys(nodes, 0)
    plain: Pods = {}
    running: list[RunningGang] = []
    for name in nodes:
        count = draw(st.integers(0, 3))
        plain[name], used[name] = (0, count), count
    for number in range(draw(st.integers(0, 6))):
        pods: Pods = {}
        for name in draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=2)):
            count = min(draw(st.sampled_from((1, 2, 4, 8))), 8 - used[name])
            if count:
                pods[name], used[name] = (used[name], count), used[name] + count
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
