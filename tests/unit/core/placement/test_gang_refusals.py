"""Gangs that get no plan: what can never fit is told from what must wait."""

from dataclasses import replace

import pytest

from kompakt_core.ids import NodeName
from kompakt_core.patterns.edges import parse_edges
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import Gang, Reason, Rejection, Taint
from tests.support.core.gangs import RING, cluster, gang, node
from tests.support.core.outcomes import refusal


def test_a_gang_gets_all_or_nothing() -> None:
    snapshot = cluster(node("a", taken=(0, 1, 2, 3, 4, 5)), node("b", taken=(0, 1, 2, 3, 4)))
    refusal = plan_gang(snapshot, gang(3))
    assert refusal == Rejection(Reason.DOES_NOT_FIT_NOW, have=2, need=3)
    assert sentence(refusal) == "2 of 3 workers would find a place now; the gang waits for all"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "refusal", "words"),
    [
        (
            gang(1, 9),
            Rejection(Reason.NEVER_FITS, have=8, need=9, detail="worker"),
            "one worker asks for 9 GPUs but the largest node has 8",
        ),
        (
            gang(3, 4),
            Rejection(Reason.NEVER_FITS, have=8, need=12, detail="gang"),
            "all workers together ask for 12 GPUs but the cluster has 8",
        ),
        (gang(1, 8, replace(RING, same_numa_node=True)), Rejection(Reason.NEVER_FITS, detail="demands"), "sameNUMANode"),
        (
            gang(1, 2, replace(RING, pattern=Pattern.CUSTOM, edges=parse_edges("0-1,1-2"))),
            Rejection(Reason.TOO_FEW_RANKS, have=2, need=3),
            "the edges name rank 2 but the pod has 2 GPUs, numbered from 0",
        ),
    ],
)
def test_what_can_never_fit_is_told_from_what_must_wait(wanted: Gang, refusal: Rejection, words: str) -> None:
    found = plan_gang(cluster(node("a", taken=(0, 1, 2, 3, 4, 5, 6, 7))), wanted)
    assert found == refusal
    assert words in sentence(refusal)


def test_passing_troubles_are_no_reason_for_never() -> None:
    trouble = Taint("node.kubernetes.io/not-ready", "NoExecute")
    state = node("a", ready=False, unschedulable=True, taints=(trouble,), problem=Reason.STALE_TOPOLOGY, free_pods=0)
    assert plan_gang(cluster(state), gang(1, excluded=frozenset({NodeName("a")}))) == Rejection(
        Reason.DOES_NOT_FIT_NOW, have=0, need=1
    )
    lasting = replace(state, taints=(Taint("team", "NoSchedule", "x"),))
    assert plan_gang(cluster(lasting), gang(1)) == Rejection(Reason.NEVER_FITS, detail="demands")


def test_an_empty_gang_is_a_mistake() -> None:
    assert "without workers" in refusal(plan_gang, cluster(node("a")), gang(0))
