"""The configuration files of a node's programs, and how they are called."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tools.kube.components import Addresses, Find, Keys, node_kubeconfig
from tools.kube.pki import certificate_kubeconfig

CLUSTER_DNS = "10.96.0.10"
_CNI_PLUGINS = "/usr/lib/cni"  # where Debian's and Ubuntu's containernetworking-plugins puts them

_OWN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # Where root lacks CAP_SYS_RESOURCE runc cannot lower a score, and no pod would start.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
"""
_HANDLER = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
    BinaryName = "{program}"
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """How a node is known to the cluster."""

    name: str
    address: str
    labels: Mapping[str, str]
    own_disk: bool = False  # whether kubelet's folder is a file system of its own


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """Another containerd than the host's, with its shim, in one folder; and OCI runtimes beside runc, programs by handler."""

    programs: Path | None = None
    handlers: Mapping[str, Path] = field(default_factory=dict)


def containerd(folder: Path, pause: str, runtime: ContainerRuntime) -> list[str]:
    path = folder / "containerd.toml"
    handlers = "".join(_HANDLER.format(name=name, program=program) for name, program in runtime.handlers.items())
    path.write_text(_CONTAINERD.format(pause=pause, plugins=_CNI_PLUGINS, folder=folder) + handlers)
    found = ["env", f"PATH={runtime.programs}:{_OWN_PATH}"] if runtime.programs else []
    return [*found, "containerd", "--config", str(path)]


def pod_network(folder: Path, pods: str) -> None:
    """A bridge per node; other nodes' pods are reached by plain routes, so nothing is masqueraded."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    (folder / "cni").mkdir()
    document = {"cniVersion": "0.4.0", "name": "kube", "plugins": [bridge, ports]}
    (folder / "cni/10-kube.conflist").write_text(json.dumps(document, indent=1))


def kubelet(folder: Path, node: Identity, find: Find, keys: Keys, addresses: Addresses) -> list[str]:
    kubeconfig = node_kubeconfig(keys, addresses, node.name)
    path = folder / "kubelet.yaml"
    path.write_text(yaml.safe_dump(_kubelet_document(folder, node, keys)))
    labels = ",".join(f"{key}={value}" for key, value in sorted(node.labels.items()))
    return [
        *(str(find("kubelet")), f"--config={path}", f"--kubeconfig={kubeconfig}"),
        *(f"--hostname-override={node.name}", f"--node-ip={node.address}", f"--node-labels={labels}"),
    ]


def _kubelet_document(folder: Path, node: Identity, keys: Keys) -> dict[str, object]:
    serving = keys.authority.server(f"serving-{node.name}", f"system:node:{node.name}", (node.name, node.address))
    (folder / "resolv.conf").write_text("")  # pods have no way out of the cluster's network
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys.authority.certificate_file)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "clusterDomain": "cluster.local",
        "clusterDNS": [CLUSTER_DNS],
        "resolvConf": str(folder / "resolv.conf"),
        # The disk is the host's: how full it is says nothing about this node. Kubelet's own default for one is 10%.
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "10%" if node.own_disk else "0%",
            "imagefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "evictionPressureTransitionPeriod": "1s",  # instead of five minutes
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # New devices show up, and a lost node is noticed, within seconds instead of a minute.
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 4,
    }


def kube_proxy(folder: Path, node: Identity, find: Find, keys: Keys, addresses: Addresses) -> list[str]:
    kubeconfig = certificate_kubeconfig(
        folder / "kube-proxy.kubeconfig",
        addresses.server,
        keys.authority.certificate_file,
        keys.authority.client(f"kube-proxy-{node.name}", "system:kube-proxy"),
    )
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node.name,
        "mode": "iptables",
        "clusterCIDR": addresses.cluster_cidr,
        # 0 = leave the kernel's limits alone: they belong to the host.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    path = folder / "kube-proxy.yaml"
    path.write_text(yaml.safe_dump(document))
    return [str(find("kube-proxy")), f"--config={path}"]
