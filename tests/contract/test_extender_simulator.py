"""The simulator's placement `planned` and the extender's planner decide alike: on every state that a recorded run of a
trace went through, the same GPUs of the same machines, although one reads masks and the other objects of the cluster.
"""

from datetime import UTC, datetime

import pytest

from kompakt_core import contract as c
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import GpuUuid, NodeName, PodUid, mask_of
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import Level, Plan
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import MACHINES
from kompakt_extender.gangs import gang_of
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.views import JobView, NodeView, PodView, TopologyView
from kompakt_simulator.cluster import ClusterState, GpuSet
from kompakt_simulator.placements import Planned
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import simulate
from kompakt_simulator.traces.reading import load_trace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING_DECIDED = Record(attempt=1, state=State.WAITING, reason="", message="", waiting_since="")
WISHES = {c.ANN_PATTERN: "Ring", c.ANN_SENSITIVITY: "High"}
Decision = tuple[ClusterState, int, GpuSet | None]


def recorded(machine: str, machines: int) -> list[Decision]:
    """Every question that the placement was asked while a trace ran, and its answer."""
    graph = MACHINES[machine].graph()
    planned, decisions = Planned(graph), list[Decision]()

    def place(cluster: ClusterState, gpus: int) -> GpuSet | None:
        chosen = planned(cluster, gpus)
        decisions.append((cluster, gpus, chosen))
        return chosen

    simulate(load_trace("tiresias-60").jobs, ClusterState.empty(machines, graph.size), POLICIES["fifo-skip"], place)
    return decisions


def graph_of(machine: str, node: str) -> LinkGraph:
    return MACHINES[machine].graph(lambda index: f"GPU-{node}-{index}")


def ledger_of(machine: str, cluster: ClusterState) -> GpuLedger:
    """The same cluster as the extender would read it: taken GPUs are reported as held by the device plugin."""
    ledger = GpuLedger()
    for number in range(cluster.machines):
        name = NodeName(f"node-{number:03}")
        graph, free = graph_of(machine, name), cluster.free_of(number)
        held = tuple((GpuUuid(gpu.uuid), PodUid("other")) for gpu in graph.gpus if not free >> gpu.index & 1)
        ledger.set_node(NodeView(name, f"uid-{name}", {}, (), False, True, 64_000, 512 << 30, 110, graph.size))
        ledger.set_topology(TopologyView(name, f"uid-{name}", graph, "", graph.size, held))
    return ledger


def decided(machine: str, cluster: ClusterState, gpus: int) -> GpuSet | None:
    """What the extender's planner would write for a job of so many GPUs, as a set of the simulator's."""
    whole, rest = divmod(gpus, cluster.gpus_per_machine)
    sizes = [cluster.gpus_per_machine] * whole + [rest] * (rest > 0)
    pods = [pod(index, size) for index, size in enumerate(sizes)]
    job = JobView("job", "default", "job", "1", 1, len(pods), 1, False, False, True, Level.CLUSTER, False, {}, None)
    answer = plan_gang(ledger_of(machine, cluster).snapshot(), gang_of(job, pods, NOTHING_DECIDED, NOW))
    if not isinstance(answer, Plan):
        return None
    return GpuSet(sum(cluster.on_machine(int(seat.node.removeprefix("node-")), mask_of(seat.gpus)) for seat in answer.seats))


def pod(index: int, gpus: int) -> PodView:
    labels = {c.LABEL_ATTEMPT: "1", c.LABEL_WORKER_INDEX: str(index)}
    return PodView(
        PodUid(f"pod-{index}"),
        "default",
        f"job-worker-{index}-a1",
        job_uid="job",
        ours=True,
        gpus=gpus,
        labels=labels,
        annotations=WISHES,
    )


@pytest.mark.parametrize(("machine", "machines"), [("dgx1-v100", 2), ("a100-pcie-4-two-bridges-4-numa", 4)])
def test_the_same_state_gets_the_same_gpus(machine: str, machines: int) -> None:
    decisions = recorded(machine, machines)
    assert {chosen is None for *_, chosen in decisions} == {True, False}, "the trace must both place and refuse"
    for cluster, gpus, chosen in decisions:
        assert decided(machine, cluster, gpus) == chosen, f"{gpus} GPUs with {cluster.free:#x} free"
