"""A cluster of simulated nodes: the one that tests share, or one of a file's own, which may be left in pieces."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.kube import simulated
from tools.kube.binaries import find_all
from tools.kube.processes import launch_tied
from tools.kube.programs import SIMULATED
from tools.kube.session import ClusterSession
from tools.kube.simulated import SimulatedMachine


@contextmanager
def own_cluster(folder: Path, machines: Iterable[SimulatedMachine]) -> Iterator[ClusterSession]:
    """Control plane and simulated nodes, nothing of ours; gone with the block, or with pytest."""
    find = find_all([*SIMULATED, "helm"]).__getitem__
    cluster = ClusterSession(simulated.start(folder / "run", find, machines, launch=launch_tied), find)
    try:
        yield cluster
    finally:
        cluster.stop()
