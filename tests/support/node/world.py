"""A cluster with real nodes, as tests hold it."""

from dataclasses import dataclass

from tools.kube import stack
from tools.kube.elsewhere import Elsewhere
from tools.kube.kubectl import Kubectl
from tools.kube.real import RealCluster
from tools.kube.stack import Images


@dataclass(frozen=True)
class World:
    """The running cluster, how to ask it, and the images that it was made from."""

    cluster: RealCluster | Elsewhere
    kubectl: Kubectl
    images: Images
    machines: tuple[str, ...] = stack.REAL_NODES  # the nodes that play stack.MACHINES
