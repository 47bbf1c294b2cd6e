"""The control plane as a list of programs: name, arguments, readiness.

Nothing here starts anything. `control_plane` starts the list with a plain launcher on 127.0.0.1; real nodes start the
same list inside network namespaces, with other addresses and another launcher.
"""

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools.kube.pki import Authority, Signed, certificate_kubeconfig, new_authority, new_token_key

Find = Callable[[str], Path]
"""Name of a program -> its path (`binaries.find`)."""

API_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the control plane listens and is reached. `host` serves etcd, controller manager and scheduler."""

    host: str = "127.0.0.1"
    etcd: int = 2379
    etcd_peer: int = 2380
    api_host: str = "127.0.0.1"  # the API server's address for everybody, nodes included
    api_bind: str = "127.0.0.1"
    api: int = 6443
    controller_manager: int = 10257
    scheduler: int = 10259
    service_cidr: str = "10.96.0.0/16"
    service_ip: str = "10.96.0.1"  # first address of service_cidr: the Service `kubernetes`
    cluster_cidr: str = "10.244.0.0/16"

    @property
    def server(self) -> str:
        return f"https://{self.api_host}:{self.api}"

    @property
    def loopback(self) -> bool:
        """Whether no pod can reach the API server, so that a Service `kubernetes` would lead nowhere."""
        return self.api_host.startswith("127.")


@dataclass(frozen=True, slots=True)
class Component:
    """One program of the control plane; `ready` answers whether it serves, and never raises."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    seconds: float = 60.0  # longest start seen was 13 s, on a machine that compiled on all cores


@dataclass(frozen=True, slots=True)
class Keys:
    """The files of one cluster that components and clients read."""

    authority: Authority
    token_private: Path
    token_public: Path
    api: Signed
    kubelet_client: Signed
    admin: Path
    controller_manager: Path
    scheduler: Path

    @property
    def folder(self) -> Path:
        return self.authority.folder


def make_keys(folder: Path, addresses: Addresses, *, more_hosts: tuple[str, ...] = ()) -> Keys:
    """All keys and kubeconfig files of the control plane. Nodes get theirs by `node_kubeconfig`."""
    authority = new_authority(folder)
    private, public = new_token_key(folder)
    hosts = dict.fromkeys((*API_NAMES, addresses.service_ip, addresses.api_host, "127.0.0.1", *more_hosts))

    def kubeconfig(name: str, user: str, group: str | None = None) -> Path:
        return certificate_kubeconfig(
            folder / f"{name}.kubeconfig", addresses.server, authority.certificate_file, authority.client(name, user, group)
        )

    return Keys(
        authority=authority,
        token_private=private,
        token_public=public,
        api=authority.server("apiserver", "kube-apiserver", hosts),
        kubelet_client=authority.client("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters"),
        admin=kubeconfig("admin", "kubernetes-admin", "system:masters"),
        controller_manager=kubeconfig("controller-manager", "system:kube-controller-manager"),
        scheduler=kubeconfig("scheduler", "system:kube-scheduler"),
    )


def node_kubeconfig(keys: Keys, addresses: Addresses, node: str) -> Path:
    """The kubeconfig of one node's kubelet, which Node authorizer and NodeRestriction hold to its own objects."""
    client = keys.authority.client(f"kubelet-{node}", f"system:node:{node}", "system:nodes")
    path = keys.folder / f"kubelet-{node}.kubeconfig"
    return certificate_kubeconfig(path, addresses.server, keys.authority.certificate_file, client)


def control_plane(
    find: Find, addresses: Addresses, keys: Keys, folder: Path, *, more: dict[str, tuple[str, ...]] | None = None
) -> list[Component]:
    """The programs in start order; each needs only those before it. `more` adds arguments by component name."""
    makers = (_etcd, _api_server, _controller_manager, _scheduler)
    components = [make(find, addresses, keys, folder) for make in makers]
    extra = more or {}
    return [Component(c.name, (*c.argv, *extra.get(c.name, ())), c.ready, c.seconds) for c in components]


def _etcd(find: Find, a: Addresses, keys: Keys, folder: Path) -> Component:
    client, peer = f"http://{a.host}:{a.etcd}", f"http://{a.host}:{a.etcd_peer}"
    argv = (
        str(find("etcd")),
        "--name=n0",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",  # the cluster is thrown away: losing it with the power costs nothing
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=n0={peer}",
        "--log-level=warn",
    )
    return Component("etcd", argv, lambda: answers(f"{client}/health"))


def _api_server(find: Find, a: Addresses, keys: Keys, folder: Path) -> Component:
    argv = (
        str(find("kube-apiserver")),
        f"--etcd-servers=http://{a.host}:{a.etcd}",
        f"--bind-address={a.api_bind}",
        f"--advertise-address={a.api_host}",
        f"--secure-port={a.api}",
        # A loopback address is refused as an endpoint of the Service `kubernetes`, so none is kept then.
        *(("--endpoint-reconciler-type=none",) if a.loopback else ()),
        f"--service-cluster-ip-range={a.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={keys.authority.certificate_file}",
        f"--tls-cert-file={keys.api.certificate}",
        f"--tls-private-key-file={keys.api.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.token_public}",
        f"--service-account-signing-key-file={keys.token_private}",
        f"--kubelet-client-certificate={keys.kubelet_client.certificate}",
        f"--kubelet-client-key={keys.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
    )
    return Component("kube-apiserver", argv, lambda: answers(f"{a.server}/readyz"))


def _controller_manager(find: Find, a: Addresses, keys: Keys, folder: Path) -> Component:
    argv = (
        str(find("kube-controller-manager")),
        f"--kubeconfig={keys.controller_manager}",
        f"--authentication-kubeconfig={keys.controller_manager}",
        f"--authorization-kubeconfig={keys.controller_manager}",
        f"--bind-address={a.host}",
        f"--secure-port={a.controller_manager}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={keys.token_private}",
        f"--root-ca-file={keys.authority.certificate_file}",
        f"--cluster-signing-cert-file={keys.authority.certificate_file}",
        f"--cluster-signing-key-file={keys.authority.key_file}",
        f"--cluster-cidr={a.cluster_cidr}",
        "--allocate-node-cidrs=false",
        # With the defaults (20 a second) 1,000 new nodes keep their first taints for 3.5 minutes.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    )
    return Component("kube-controller-manager", argv, lambda: answers(f"https://{a.host}:{a.controller_manager}/healthz"))


def _scheduler(find: Find, a: Addresses, keys: Keys, folder: Path) -> Component:
    config = folder / "scheduler.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(keys.scheduler), "qps": 1000, "burst": 2000},
    }
    config.write_text(yaml.safe_dump(document))
    argv = (
        str(find("kube-scheduler")),
        f"--config={config}",
        f"--bind-address={a.host}",
        f"--secure-port={a.scheduler}",
        f"--authentication-kubeconfig={keys.scheduler}",
        f"--authorization-kubeconfig={keys.scheduler}",
    )
    return Component("kube-scheduler", argv, lambda: answers(f"https://{a.host}:{a.scheduler}/healthz"))


def answers(url: str) -> bool:
    """Whether a health path answers 200. Health needs no identity, so the certificate is not looked at."""
    try:
        with urllib.request.urlopen(url, timeout=1, context=_UNVERIFIED) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        error.close()  # it is the answer as well, with its connection
        return False
    except (OSError, urllib.error.URLError):
        return False


_UNVERIFIED = ssl.create_default_context()
_UNVERIFIED.check_hostname = False
_UNVERIFIED.verify_mode = ssl.CERT_NONE
