"""kompakt's own processes beside a control plane, with the rights the chart gives them.

On simulated nodes nothing can run in a pod, so operator, scheduler pair and the stand-in for device plugins run as
plain processes. Their rights, and kube-scheduler's configuration, are those of the chart: rendered, applied, and used
with ServiceAccount tokens.
"""

import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kompakt_client.errors import ApiError
from kompakt_client.transport import ApiClient, connect
from kompakt_core.contract import (
    API_VERSION,
    GANG_PLURAL,
    JOB_PLURAL,
    LIMITS_PLURAL,
    TOKEN_AUDIENCE,
    TOKEN_HEADER,
    TOPOLOGY_PLURAL,
)
from tools.kube.admission import await_policies
from tools.kube.components import Component, Find, answers
from tools.kube.control_plane import ControlPlane, StartFailed
from tools.kube.pki import token_kubeconfig
from tools.kube.ports import free_ports
from tools.kube.processes import wait_until
from tools.kube.programs import PROGRAMS, version_of

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
NAMESPACE = "kompakt-system"
RELEASE = "kompakt"
# What the chart contains beside workloads; workloads need images and nodes that run them.
RIGHTS = frozenset(
    {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    | {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "FlowSchema"}
    | {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
)
READER = f"{RELEASE}-explain-reader"  # in whose name tests and benchmarks ask our parts
IMAGES = {"image.registry": "localhost"}  # which nobody pulls here
# The stand-in for the device plugins of all nodes works with the administrator's account.
STAND_INS = {
    "admission.writers": "{kubernetes-admin}",
    **IMAGES,
    **{f"monitoring.readers[0].{name}": text for name, text in {"kind": "ServiceAccount", "name": READER}.items()},
    "monitoring.readers[0].namespace": NAMESPACE,
}
RUNTIME_IMAGE = "localhost/kompakt-runtime:simulated"
# What `helm template` is told that the cluster serves: what others define is installed later by some tests, claims every cluster
# here has.
APIS = "kueue.x-k8s.io/v1beta1/Workload,autoscaling.x-k8s.io/v1/ProvisioningRequest,resource.k8s.io/v1/ResourceClaim"
TOKEN_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Pair:
    """Names of the two components of one scheduler pod."""

    identity: str
    scheduler: str
    extender: str
    health_port: int


@dataclass(slots=True)
class Parts:
    """The parts of kompakt in one cluster. `install` first; then each part is a Component of the plane."""

    plane: ControlPlane
    find: Find
    chart: list[dict[str, Any]] = field(default_factory=list)
    server: str = ""  # where our parts find the API server, if not at its own address

    @property
    def api(self) -> ApiClient:
        return connect(self.plane.kubeconfig)

    def install(self, values: Mapping[str, str] | None = None) -> None:
        """Definitions, namespace and rights, in force. `values` are settings of the chart, by dotted path."""
        self.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        self.await_definitions()
        self.chart = render(self.find, {**STAND_INS, **(values or {})})
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        rights = [document for document in self.chart if document["kind"] in RIGHTS]
        text = yaml.safe_dump_all([namespace, *rights])
        self.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        await_policies(self.api, self.chart, NAMESPACE)

    def await_definitions(self, seconds: float = 30) -> None:
        """Wait until the API server serves our kinds. (`kubectl wait` fails on a definition that has no status yet.)"""

        def served() -> bool:
            try:
                resources = self.api.get(f"/apis/{API_VERSION}")["resources"]
            except ApiError:
                return False
            return {JOB_PLURAL, GANG_PLURAL, LIMITS_PLURAL, TOPOLOGY_PLURAL} <= {resource["name"] for resource in resources}

        if not wait_until(served, seconds):
            raise StartFailed(f"the API server does not serve {API_VERSION} after {seconds:.0f} s")

    def operator(self, identity: str = "operator-0", *more: str) -> Component:
        """The operator; several with different identities stand by for each other. `more`: further arguments."""
        port = free_ports(1)[0]
        argv = restarted(
            str(BIN / "kompakt-operator"),
            f"--kubeconfig={self.account_kubeconfig('operator')}",
            f"--runtime-image={RUNTIME_IMAGE}",
            f"--lease-namespace={NAMESPACE}",
            f"--identity={identity}",
            f"--health-port={port}",
            "--progress-seconds=0",  # the addresses of simulated pods are nobody's, or a stranger's
            *more,
        )
        return Component(identity, argv, lambda: answers(f"http://127.0.0.1:{port}/healthz"))

    def pair(self, identity: str = "scheduler-0") -> tuple[Pair, Component, Component]:
        """A scheduler pod as two processes: kube-scheduler with the chart's configuration, and the extender.

        kube-scheduler writes its hostname into the Lease, so it gets one of its own (`identity`).
        """
        verbs, health, secure = free_ports(3)
        kubeconfig = self.account_kubeconfig("scheduler")
        config = self.plane.folder / f"{identity}.yaml"
        config.write_text(yaml.safe_dump(scheduler_config(self.chart, kubeconfig, verbs)))
        pair = Pair(identity, f"{identity}-kube-scheduler", f"{identity}-extender", health)
        extender = self._extender(identity, kubeconfig, health, f"--verbs-port={verbs}", f"--scheduler-port={secure}")
        scheduler = restarted(
            *(() if identity == socket.gethostname() else with_hostname(identity)),
            str(self.find("kube-scheduler")),
            f"--config={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
        )
        return (
            pair,
            Component(pair.extender, extender, lambda: answers(f"http://127.0.0.1:{health}/healthz")),
            Component(pair.scheduler, scheduler, lambda: answers(f"https://127.0.0.1:{secure}/livez")),
        )

    def planner(self, identity: str = "planner-0") -> Component:
        """The planner alone, as the chart starts it with `allocation: ResourceClaims`: it holds the Lease itself."""
        health = free_ports(1)[0]
        argv = self._extender(identity, self.account_kubeconfig("scheduler"), health)
        return Component(identity, argv, lambda: answers(f"http://127.0.0.1:{health}/healthz"))

    def _extender(self, identity: str, kubeconfig: Path, health: int, *more: str) -> tuple[str, ...]:
        """Its command, as in the chart but for addresses of this machine."""
        return restarted(
            str(BIN / "kompakt-extender"),
            f"--kubeconfig={kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--identity={identity}",
            f"--health-port={health}",
            "--health-address=127.0.0.1",
            *more,
            *extender_settings(self.chart),
        )

    def faulty_server(self, seed: int, rate: float = 0.1) -> tuple[str, Component]:
        """A proxy before the API server that spoils that share of requests, and its address for `server`."""
        port = free_ports(1)[0]
        signed = self.plane.keys.authority.server("faulty", "faulty", ["127.0.0.1"])
        argv = (
            *(sys.executable, "-m", "tools.kube.faulty", f"--upstream={self.plane.addresses.server}", f"--port={port}"),
            *(f"--rate={rate}", f"--seed={seed}", f"--authority={self.plane.keys.authority.certificate_file}"),
            *(f"--certificate={signed.certificate}", f"--key={signed.key}"),
        )
        address = f"https://127.0.0.1:{port}"
        return address, Component("faulty", argv, lambda: answers(f"{address}/faulty"))

    def simulated_plugins(self) -> Component:
        """The stand-in for the device plugins of all simulated nodes; ready when each has its GPUTopology."""
        argv = restarted(sys.executable, "-m", "tools.kube.simnodes", f"--kubeconfig={self.plane.kubeconfig}")
        return Component("simulated-plugins", argv, self.every_machine_reported)

    def every_machine_reported(self) -> bool:
        """Whether each simulated node has its GPUTopology."""
        try:
            nodes = self.api.get("/api/v1/nodes?labelSelector=type%3Dkwok")["items"]
            reported = self.api.get(f"/apis/{API_VERSION}/{TOPOLOGY_PLURAL}")["items"]
        except ApiError:
            return False
        return {node["metadata"]["name"] for node in nodes} <= {topology["metadata"]["name"] for topology in reported}

    def account_kubeconfig(self, part: str) -> Path:
        """A kubeconfig file with a token of the part's ServiceAccount."""
        account = f"{RELEASE}-{part}"
        token = account_token(self.api, account)
        authority = self.plane.keys.authority.certificate_file
        path = self.plane.folder / f"{account}{'-by-detour' if self.server else ''}.kubeconfig"
        return token_kubeconfig(path, self.server or self.plane.addresses.server, authority, token)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator. Raises StartFailed with what it complained about."""
        command = [str(self.find("kubectl")), f"--kubeconfig={self.plane.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StartFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


def account_token(api: ApiClient, account: str, namespace: str = NAMESPACE, audiences: Sequence[str] = ()) -> str:
    """A token of a ServiceAccount, for the API server unless `audiences` names others."""
    spec = {"expirationSeconds": TOKEN_SECONDS, **({"audiences": list(audiences)} if audiences else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
    return str(answer["status"]["token"])


def asking_headers(api: ApiClient, account: str = READER, namespace: str = NAMESPACE) -> dict[str, str]:
    """What makes our parts answer questions and scrapes."""
    return {TOKEN_HEADER: account_token(api, account, namespace, [TOKEN_AUDIENCE])}


def render(find: Find, values: Mapping[str, str], root: Path = ROOT) -> list[dict[str, Any]]:
    """The objects of the chart below `root`. Raises StartFailed with Helm's complaint."""
    settings = [f"--set={name}={value}" for name, value in {**IMAGES, **values}.items()]
    server = version_of(find("kube-apiserver"), PROGRAMS["kube-apiserver"])
    version = [f"--kube-version={'.'.join(map(str, server))}"] if server else []
    where = [f"--namespace={NAMESPACE}", f"--api-versions={APIS}", *version]
    command = [str(find("helm")), "template", RELEASE, str(root / "charts" / "kompakt"), *where, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StartFailed(f"helm template: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def scheduler_config(chart: list[dict[str, Any]], kubeconfig: Path, verbs_port: int) -> dict[str, Any]:
    """kube-scheduler's configuration from the chart, with this machine's kubeconfig and port filled in."""
    texts = [d["data"]["scheduler.yaml"] for d in chart if d["kind"] == "ConfigMap" and "scheduler.yaml" in d.get("data", {})]
    if len(texts) != 1:
        raise StartFailed(f"the chart holds {len(texts)} configurations of kube-scheduler, not one")
    config: dict[str, Any] = yaml.safe_load(texts[0])
    config["clientConnection"]["kubeconfig"] = str(kubeconfig)
    config["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{verbs_port}"
    return config


def extender_settings(chart: list[dict[str, Any]]) -> list[str]:
    """The extender's arguments in the chart, but the namespace, which is an environment variable's there."""
    pods = [d["spec"]["template"]["spec"] for d in chart if d["kind"] == "Deployment"]
    arguments = [c.get("args", []) for pod in pods for c in pod["containers"] if c["name"] == "extender"]
    if len(arguments) != 1:
        raise StartFailed(f"the chart holds {len(arguments)} containers called extender, not one")
    return [argument for argument in arguments[0] if not argument.startswith("--namespace=")]


def with_hostname(name: str) -> tuple[str, ...]:
    """A command prefix that gives a program a hostname of its own: a UTS namespace, inside a user namespace of ours."""
    return ("unshare", "--user", "--map-root-user", "--uts", "sh", "-c", f'hostname {name} && exec "$0" "$@"')


def restarted(*argv: str) -> tuple[str, ...]:
    """A command that starts a program again whenever it ends, as a kubelet does with a container.

    kube-scheduler and the operator end on purpose when they lose their Lease. The kernel kills the program with the loop.
    """
    return ("sh", "-c", 'while :; do setpriv --pdeathsig KILL "$0" "$@"; sleep 1; done', *argv)


def can_set_hostname() -> bool:
    """Whether this machine allows such namespaces."""
    try:
        return subprocess.run([*with_hostname("probe"), "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
