"""A real driver for dynamic resource allocation on one node: Kubernetes' own test driver under the name of NVIDIA's, which needs
their hardware. It publishes GPUs by UUID in a ResourceSlice and prepares what the scheduler allocates.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tests.support.node.world import World
from tools.kube import binaries, node
from tools.kube.gpu_views import kubelet_folder
from tools.kube.node import RealNode

DRIVER: Final = "gpu.nvidia.com"
API: Final = "resource.k8s.io/v1"
CLASS: Final = {
    "apiVersion": API,
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}


@contextmanager
def dra_driver(world: World, one: RealNode, gpus: Mapping[str, str], *, cdi: str = "") -> Iterator[None]:
    """It runs on the node meanwhile. `gpus`: UUIDs by the names of devices. `cdi`: the kind of the CDI devices that containers
    get, on a node whose container runtime knows these.
    """
    for folder in (f"plugins/{DRIVER}", "plugins_registry", "cdi"):
        (kubelet_folder(one) / folder).mkdir(parents=True, exist_ok=True)
    command = [
        str(binaries.find("dra-driver")),
        f"--kubeconfig={world.cluster.plane.keys.folder / f'kubelet-{one.name}.kubeconfig'}",
        f"--node={one.name}",
        f"--driver={DRIVER}",
        "--cdi-dir=/run/cdi" if cdi else "--cdi-dir=/var/lib/kubelet/cdi",
        f"--cdi-kind={cdi}",
        f"--devices={','.join(f'{name}={uuid}' for name, uuid in gpus.items())}",
    ]
    with (one.home / "dra-driver.log").open("wb") as log:
        running = subprocess.Popen(
            node.inside(one, world.cluster.spaces, command), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(running.pid, signal.SIGTERM)  # nsenter passes nothing on
        running.wait(20)
        world.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}")


def claim(name: str, count: int) -> dict[str, Any]:
    """For so many GPUs of that driver."""
    request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def claiming_pod(name: str, image: str, script: str) -> dict[str, Any]:
    """One that uses the claim of its own name."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"claims": [{"name": "gpus"}]},
    }
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpus", "resourceClaimName": name}],
        "terminationGracePeriodSeconds": 1,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
