"""What a pod may have on one node, without any cluster around it."""

import json

import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName, indices_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.choose import choose
from kompakt_core.placement.model import Choice, GpuRequest, NodeState, Reason, Rejection
from kompakt_core.topology.machines import machine
from kompakt_extender.decide import Grant, Request, grant, rank, request_of
from kompakt_extender.project import read_pod
from tests.support.extender.made_objects import worker

PARTITIONED = machine("h800-8-shared")
RING = GpuRequest(Pattern.RING, sensitive=True)


def planned(indices: tuple[int, ...]) -> Grant:
    request = Request(len(indices), RING, "n", tuple(PARTITIONED.gpus[i].uuid for i in indices))
    found = grant(request, NodeState(NodeName("n"), PARTITIONED))
    assert isinstance(found, Grant)
    return found


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_planned_set_that_is_a_partition_is_worth_its_nvlinks(size: int) -> None:
    best = choose(PARTITIONED, PARTITIONED.all_gpus, size, RING)
    assert isinstance(best, Choice)
    found = planned(best.order)
    assert found.value == best.value == PARTITIONED.link(best.order[0], best.order[1]).megabytes_per_second


def test_a_planned_set_that_is_no_partition_is_worth_what_pcie_gives() -> None:
    offered = set(PARTITIONED.partition_masks.values())
    pairs = [1 << a | 1 << b for a in range(8) for b in range(a)]
    apart = next(mask for mask in pairs if mask not in offered)
    link = PARTITIONED.link(*indices_of(apart))
    found = planned(tuple(indices_of(apart)))
    assert 0 < found.value < link.megabytes_per_second
    # As choose says of the same two GPUs where nothing else is free.
    alone = choose(PARTITIONED, apart, 2, RING)
    assert isinstance(alone, Choice)
    assert found.value == alone.value
    state = NodeState(NodeName("n"), PARTITIONED, taken=PARTITIONED.all_gpus & ~apart)  # type: ignore[arg-type]
    assert rank(Request(2, RING), state, found)[:2] == (alone.value, alone.second)


@pytest.mark.parametrize("gpus", ["", "GPU-n0-0"], ids=["no plan", "a plan of another size"])
def test_a_gangs_pod_without_a_plan_of_its_own_is_rejected(gpus: str) -> None:
    made = worker("j", 0, gpus=2)
    made["metadata"]["annotations"] |= {c.ANN_PLANNED_NODE: "n0", c.ANN_PLANNED_GPUS: gpus} if gpus else {}
    assert request_of(read_pod(json.dumps(made).encode())) == Rejection(Reason.NO_PLAN)
