"""Machines beside those of all cluster tests."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.cluster.reading import topologies
from tools.kube import simulated
from tools.kube.session import ClusterSession, eventually
from tools.kube.simulated import SimulatedMachine


@contextmanager
def more_machines(cluster: ClusterSession, machines: Sequence[SimulatedMachine]) -> Iterator[ClusterSession]:
    """The cluster with these machines as well; gone again afterwards, with their GPUTopologies."""
    simulated.add_machines(cluster.plane, machines)
    eventually(cluster.parts.every_machine_reported, "a GPUTopology of every machine")
    yield cluster
    names = {machine.name for machine in machines}
    for name in names:
        cluster.core.delete_node(name)
    eventually(lambda: not names & topologies(cluster).keys(), "their GPUTopologies are gone")
