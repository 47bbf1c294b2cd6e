"""The chart's device plugin: what it is allowed, and that the program takes every argument it is given."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kompakt_device_plugin.main import options_of
from tools.kube import binaries

ROOT = Path(__file__).resolve().parents[2]
NVML = (
    "devicePlugin.source=nvml",
    "devicePlugin.ownGPUs={GPU-1,GPU-2}",
    "devicePlugin.numaHints=true",
    "devicePlugin.skipXIDs={94}",
    "devicePlugin.heedXIDs={13}",
    "devicePlugin.cdi=never",
    "devicePlugin.nvmlLibrary=/opt/libnvidia-ml.so.1",
)


def pod_of(*settings: str) -> dict[str, Any]:
    """The DaemonSet's pod with these values."""
    more = [f"--set={setting}" for setting in settings]
    command = [str(binaries.find("helm")), "template", "kompakt", str(ROOT / "charts/kompakt"), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "DaemonSet"]
    pod: dict[str, Any] = found[0]["spec"]["template"]["spec"]
    return pod


def test_it_is_root_with_nothing_of_roots_power() -> None:
    pod = pod_of()
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert (context["runAsUser"], context["capabilities"]) == (0, {"drop": ["ALL"]})
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert "privileged" not in context
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/var/lib/kubelet/device-plugins", "/tmp"]


def test_it_is_ready_only_when_it_serves_its_node() -> None:
    (container,) = pod_of()["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("settings", [(), NVML])
def test_the_program_takes_every_argument_of_the_chart(settings: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    (container,) = pod_of(*settings, f"devicePlugin.kubeletDir={tmp_path}")["containers"]
    options = options_of([argument.replace("$(NODE_NAME)", "node-1") for argument in container["args"]])
    assert options.node_name == "node-1"
    assert options.source == ("nvml" if settings else "text")
    assert options.own_gpus == ({"GPU-1", "GPU-2"} if settings else set())
    assert options.numa_hints is bool(settings)
    assert options.cdi == ("never" if settings else "auto")
    assert (options.skip_xids, options.heed_xids) == (("94", "13") if settings else ("", ""))


def test_with_nvml_the_container_runtime_brings_driver_and_gpus() -> None:
    pod = pod_of(*NVML, "devicePlugin.runtimeClassName=nvidia")
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in pod["containers"][0]["env"]
    assert pod["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in pod_of()


def test_it_sees_the_hosts_processes_unless_told_not_to() -> None:
    assert pod_of()["hostPID"] is True
    assert "hostPID" not in pod_of("devicePlugin.seeProcesses=false")
