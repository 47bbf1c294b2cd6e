"""A cluster of simulated nodes only: control plane, kwok, and the stand-in for their device plugins."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kompakt_client.transport import connect
from tools.kube import control_plane, kwok
from tools.kube.components import Find
from tools.kube.control_plane import ControlPlane, Say
from tools.kube.ports import free_ports
from tools.kube.processes import Launch, launch_detached


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """A simulated node: its name, the known machine it plays, its number of GPUs, further labels."""

    name: str
    machine: str
    gpus: int
    labels: tuple[tuple[str, str], ...] = ()


def machines(count: int, machine: str = "dgx1-v100", gpus: int = 8) -> list[SimulatedMachine]:
    """That many equal machines, sim-0 and up."""
    return [SimulatedMachine(f"sim-{index}", machine, gpus) for index in range(count)]


def start(
    folder: Path,
    find: Find,
    nodes: Iterable[SimulatedMachine] = (),
    *,
    launch: Launch = launch_detached,
    say: Say = lambda text: None,
) -> ControlPlane:
    """Bring the cluster up; see `control_plane.start` for what it raises."""
    plane = control_plane.start(folder, find, launch=launch, say=say)
    plane.start_component(kwok.component(find, plane.kubeconfig, folder, free_ports(1)[0]))
    add_machines(plane, nodes)
    say("kwok plays the kubelets of the simulated nodes")
    return plane


def add_machines(plane: ControlPlane, nodes: Iterable[SimulatedMachine]) -> None:
    """Create Nodes for these machines."""
    kwok.add_nodes(connect(plane.kubeconfig), (kwok.node(n.name, n.gpus, n.machine, dict(n.labels)) for n in nodes))
