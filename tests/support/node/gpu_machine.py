"""A real node with GPUs as far as a container can see: device files, CDI specifications, a library that answers as the driver's.

The device files have the driver's number, behind which nothing is: to open one fails with ENXIO where the container may, and with
EPERM where it may not.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.chart import objects
from tests.support.node.world import World
from tests.support.nvml_shim import shim
from tests.support.nvml_shim.machine import describe
from tools.kube import binaries, images, install, node, real
from tools.kube.base_image import base_image
from tools.kube.buildah import Builder
from tools.kube.cache import content_key
from tools.kube.command import output
from tools.kube.images import PACKAGES, Recipe
from tools.kube.kubectl import await_state, condition
from tools.kube.node import RealNode
from tools.kube.node_config import ContainerRuntime

MACHINE = "dgx1-v100"
MAJOR, CONTROL = 195, 255  # the driver's number, and that of nvidiactl under it
SPECIFICATION = "/run/cdi/nvidia.json"
PLUGIN = "gpu-machine-plugin"
_TOOLKIT = """disable-require = true
accept-nvidia-visible-devices-envvar-when-unprivileged = {accepts}
accept-nvidia-visible-devices-as-volume-mounts = {mounts}
[nvidia-container-runtime]
runtimes = ["runc"]
mode = "cdi"
[nvidia-container-runtime.modes.cdi]
default-kind = "nvidia.com/gpu"
annotation-prefixes = ["cdi.k8s.io/"]
spec-dirs = ["/etc/cdi", "/run/cdi"]
"""


def cuda_recipe() -> Recipe:
    """An image that asks for all GPUs by itself, as those with CUDA do."""
    text = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nENV NVIDIA_VISIBLE_DEVICES=all\n"
    return Recipe("cuda", content_key([text, base_image()]), containerfile=text)


@dataclass(frozen=True)
class GpuMachine:
    """The node, and its GPUs' UUIDs by index; their device files have the same numbers."""

    world: World
    node: RealNode
    gpus: tuple[str, ...]

    def run(self, *argv: str) -> str:
        return output(node.inside(self.node, self.world.cluster.spaces, argv))

    def load(self, image: Recipe) -> str:
        """Builds an image and brings it to this node alone; its name."""
        archive = images.build(image, Builder(self.node.home / "images.log"), print)
        self.run("ctr", "-n", "k8s.io", "images", "import", str(archive))
        images.drop_archives()
        return image.image

    def specify(self, gpus: Sequence[str]) -> None:
        """Writes a specification of these GPUs, as nvidia-ctk does: beside it first, then in its place."""
        file = self.node.home / "nvidia.json"
        file.write_text(json.dumps(_specification(self.node.home / "dev", self.gpus, gpus)))
        self.run("sh", "-c", f"mkdir -p /run/cdi && cp {file} {SPECIFICATION}.new && mv {SPECIFICATION}.new {SPECIFICATION}")


@contextmanager
def gpu_machine(world: World, *settings: str) -> Iterator[GpuMachine]:
    """One more node under containerd 2, its own device plugin with source nvml; gone afterwards. `settings`: of the chart, for
    that plugin, such as an `allocation` in which it offers nothing.

    Its handlers nvidia-open and nvidia-shut are NVIDIA's container runtime with the variable accepted and refused.
    """
    folder = world.cluster.folder / "gpu-machine"
    folder.mkdir()
    runtime = ContainerRuntime(binaries.find("containerd").parent, _handlers(folder))
    binaries.find("containerd-shim-runc-v2")
    one = real.add_node(world.cluster, "", binaries.find, world.images.root, world.images.names["pause"], runtime)
    try:
        machine = GpuMachine(world, one, tuple(str(gpu["uuid"]) for gpu in describe(MACHINE).gpus))
        _make_files(one.home / "dev", len(machine.gpus))
        await_state(lambda: condition(world.kubectl.get("node", one.name), "Ready"), f"{one.name} Ready", 60)
        machine.specify(machine.gpus)  # not earlier: until its /run is mounted it would be the host's
        world.kubectl.apply(json.dumps(_plugin(world, one, _driver(one.home / "driver"), settings)))
        if settings:
            await_state(lambda: reported(world, one.name) == list(machine.gpus), f"{one.name} reports its GPUs", 60)
        else:
            install.await_gpus(world.kubectl, {one.name: len(machine.gpus)})
        yield machine
    finally:
        world.kubectl("delete", "daemonset", PLUGIN, "--namespace=kompakt-system", "--ignore-not-found")
        real.remove_node(world.cluster, one)
        shutil.rmtree(folder)
        world.kubectl("delete", "node", one.name, "--ignore-not-found")


def reported(world: World, node: str) -> list[str]:
    """The UUIDs of its GPUTopology; none while there is none."""
    found = {one["metadata"]["name"]: one for one in world.kubectl.items("gputopologies")}
    return [gpu["uuid"] for gpu in found[node]["spec"]["gpus"]] if node in found else []


def _driver(folder: Path) -> Path:
    """The driver's library as it lies on a host, and the machine that it answers for."""
    folder.mkdir()
    (folder / "machine").write_text(describe(MACHINE).text())
    return shim.build(folder).rename(folder / "libnvidia-ml.so.1")


def _make_files(folder: Path, gpus: int) -> None:
    folder.mkdir()
    for name, minor in [*((f"nvidia{number}", number) for number in range(gpus)), ("nvidiactl", CONTROL)]:
        os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(MAJOR, minor))


def _specification(files: Path, all_gpus: Sequence[str], gpus: Sequence[str]) -> dict[str, Any]:
    """In the form of nvidia-ctk with names by UUID: one device for each GPU, one for all, and what all containers get."""
    nodes = {gpu: _device_file(files, f"nvidia{all_gpus.index(gpu)}") for gpu in gpus}
    devices = [{"name": gpu, "containerEdits": {"deviceNodes": [found]}} for gpu, found in nodes.items()]
    devices += [{"name": "all", "containerEdits": {"deviceNodes": list(nodes.values())}}] if nodes else []
    shared = {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "deviceNodes": [_device_file(files, "nvidiactl")]}
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": shared}


def _device_file(files: Path, name: str) -> dict[str, str]:
    return {"path": f"/dev/{name}", "hostPath": str(files / name)}


def _handlers(folder: Path) -> dict[str, Path]:
    """NVIDIA's container runtime with a configuration of its own for each handler."""
    program = binaries.find("nvidia-container-runtime")
    found = {}
    for name, accepts in (("nvidia-open", "true"), ("nvidia-shut", "false")):
        config, script = folder / f"{name}.toml", folder / name
        config.write_text(_TOOLKIT.format(accepts=accepts, mounts="true"))
        script.write_text(f'#!/bin/sh\nNVIDIA_CTK_CONFIG_FILE_PATH={config} exec {program} "$@"\n')
        script.chmod(0o755)
        found[name] = script
    return found


def _plugin(world: World, one: RealNode, library: Path, settings: Sequence[str]) -> dict[str, Any]:
    """The chart's DaemonSet with source nvml, on this node only. It is to be isolated: its default handler is runc."""
    ours, _, tag = world.images.names[f"kompakt-{PACKAGES[0]}"].rpartition(":")
    found = objects(
        'isolation="Strict"',
        'devicePlugin.source="nvml"',
        f'image.registry="{ours.rpartition("/")[0]}"',
        f'image.tag="{tag}"',
        f'devicePlugin.driverFolder="{library.parent}"',
        'devicePlugin.extraEnv=[{"name":"KOMPAKT_NVML_MACHINE","value":"/driver/machine"}]',
        f'devicePlugin.nodeSelector={{"kubernetes.io/hostname":"{one.name}"}}',
        *settings,
    )["DaemonSet", "kompakt-device-plugin"]
    found["metadata"] = {"name": PLUGIN, "namespace": "kompakt-system"}
    found["spec"]["selector"]["matchLabels"] = labels = {"app": PLUGIN}
    template = found["spec"]["template"]
    template["metadata"]["labels"] = labels
    for name in ("cdi", "toolkit"):  # /etc is the host's in all nodes
        _volume(template["spec"], name)["hostPath"]["path"] = str(one.home / f"etc-{name}")
    return found


def _volume(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return next(volume for volume in pod["volumes"] if volume["name"] == name)
