"""The simulated nodes of the cluster level."""

from tools.kube.simulated import Machine

RACK = "kompakt.dev/rack"
MACHINES = (
    Machine("dgx-0", "dgx1-v100", 8, ((RACK, "a"),)),
    Machine("dgx-1", "dgx1-v100", 8, ((RACK, "a"),)),
    Machine("pcie-0", "a100-pcie-8-bridge-pairs", 8, ((RACK, "b"),)),
)
