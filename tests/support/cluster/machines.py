"""The simulated nodes of the cluster level."""

from tools.kube.simulated import SimulatedMachine

RACK = "kompakt.dev/rack"
MACHINES = (
    SimulatedMachine("dgx-0", "dgx1-v100", 8, ((RACK, "a"),)),
    SimulatedMachine("dgx-1", "dgx1-v100", 8, ((RACK, "a"),)),
    SimulatedMachine("pcie-0", "a100-pcie-8-bridge-pairs", 8, ((RACK, "b"),)),
)
