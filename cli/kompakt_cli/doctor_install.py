"""Checks of what is installed: version of Kubernetes, parts of kompakt, CRDs, Leases and clocks. Pure functions of a reading."""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from msgspec import inspect

from kompakt_cli.doctor_reading import PART, PLURALS, ClusterReading, Item, is_part, only_reports, readable
from kompakt_cli.finding import Finding, ok, problem, some, warning
from kompakt_core import contract
from kompakt_core.contract import timestamps
from kompakt_core.job.gang_fields import GangSpec, GangStatus
from kompakt_core.job.limits import LimitsSpec
from kompakt_core.job.model import TrainingJobSpec
from kompakt_core.job.status_fields import TrainingJobStatus
from kompakt_core.topology.resource import GPUTopologySpec, GPUTopologyStatus

KUBERNETES: Final = ((1, 35), (1, 37))  # oldest and newest; the chart's kubeVersion says the same
DECLARED: Final[Mapping[str, Mapping[str, type]]] = {
    contract.JOB_PLURAL: {"spec": TrainingJobSpec, "status": TrainingJobStatus},
    contract.TOPOLOGY_PLURAL: {"spec": GPUTopologySpec, "status": GPUTopologyStatus},
    contract.LIMITS_PLURAL: {"spec": LimitsSpec},
    contract.GANG_PLURAL: {"spec": GangSpec, "status": GangStatus},
}
LEASES: Final = {contract.OPERATOR_LEASE: "operator", contract.SCHEDULER_LEASE: "scheduler"}
OLDEST_LEASE: Final = 60.0  # as `helm test` has it: a Lease is renewed every few seconds
SKEW_SECONDS: Final = 5.0
NODE_SILENT_SECONDS: Final = 60.0  # kubelet renews every 10 s, Kubernetes waits 40 to 50 s
UPGRADE: Final = "helm upgrade RELEASE charts/kompakt -n {} --reset-then-reuse-values"


def kubernetes(reading: ClusterReading) -> Iterator[Finding]:
    """Whether the chart supports this version of Kubernetes."""
    oldest, newest = (".".join(map(str, one)) for one in KUBERNETES)
    found = _minor(reading.version)
    if found and KUBERNETES[0] <= found <= KUBERNETES[1]:
        yield ok("Kubernetes", f"{reading.version}; supported are {oldest} to {newest}")
    else:
        yield problem(
            "Kubernetes",
            f"{reading.version}; supported are {oldest} to {newest}",
            f"use a cluster of Kubernetes {oldest} to {newest}, or a release of kompakt whose chart takes this one (kubeVersion)",
        )


def parts(reading: ClusterReading) -> Iterator[Finding]:
    """Whether each part has its pods ready, all of one version."""
    workloads = [*readable(reading.deployments), *_plugins(reading)]
    expected = (("operator", "Deployment"), ("scheduler", "Deployment"), ("device-plugin", "DaemonSet"))
    for name, wanted in expected[1:] if only_reports(reading) else expected:
        found = [one for one in workloads if is_part(one, name)]
        if not found:
            cure = f"{UPGRADE.format(reading.release)}; name another namespace with --kompakt-namespace"
            yield problem(name, f"there is no {wanted} of it in namespace {reading.release}", cure)
        yield from (_ready(name, one, reading.release) for one in found)
    yield _one_version([*workloads, *readable(reading.parts)], reading.release)
    yield from _scheduler_version(reading, workloads)


def _plugins(reading: ClusterReading) -> list[Item]:
    every = readable(reading.daemonsets)
    return [one for one in every if is_part(one, "device-plugin") and one["metadata"]["namespace"] == reading.release]


def _ready(name: str, workload: Item, release: str) -> Finding:
    """Replicas of a Deployment, or nodes of a DaemonSet."""
    status = workload.get("status") or {}
    kind = "daemonset" if "desiredNumberScheduled" in status else "deployment"
    wanted = status.get("desiredNumberScheduled", (workload.get("spec") or {}).get("replicas", 0))
    ready = status.get("numberReady", status.get("readyReplicas", 0))
    said = f"{ready} of {wanted} pods ready"
    look = f"kubectl describe pod -n {release} -l {PART}={name} says why (its readiness probe, or Events)"
    if not wanted:
        return warning(name, "wants no pod", _no_pods(name))
    if ready < wanted:
        return (problem if not ready else warning)(name, said, look)
    return ok(name, f"{said} ({kind} {workload['metadata']['name']})")


def _no_pods(name: str) -> str:
    if name == "device-plugin":
        return (
            f"label a node: kubectl label node NODE {contract.LABEL_MACHINE}=KEY (source text), or see devicePlugin.nodeSelector"
        )
    return f"set the chart value {name}.replicas to 2"


def _one_version(items: Iterable[Item], release: str) -> Finding:
    found: dict[str, list[str]] = {}
    for item in items:
        labels = item["metadata"].get("labels") or {}
        found.setdefault(labels.get("app.kubernetes.io/version", "unknown"), []).append(item["metadata"]["name"])
    said = "; ".join(f"{number}: {some(sorted(names))}" for number, names in sorted(found.items()))
    own = version("kompakt-cli")
    if len(found) > 1:
        cure = f"finish the upgrade: kubectl rollout status deployment,daemonset -n {release} -l app.kubernetes.io/name=kompakt"
        return warning("versions", f"parts of several versions: {said}", cure)
    if found and own not in found:
        number = next(iter(found))
        return warning("versions", f"the cluster has {number}, this command is {own}", f"install the command line of {number}")
    return ok("versions", f"all parts and this command are {own}")


def _scheduler_version(reading: ClusterReading, workloads: Iterable[Item]) -> Iterator[Finding]:
    """The chart takes kube-scheduler in the cluster's version, as it was when the chart was installed."""
    pods = [one["spec"]["template"]["spec"] for one in workloads if is_part(one, "scheduler")]
    images = [one["image"] for pod in pods for one in pod["containers"] if one["name"] == "kube-scheduler"]
    for image in images:
        found, wanted = _minor(image.rpartition(":")[2]), _minor(reading.version)
        if found and wanted and found != wanted:
            cure = f"{UPGRADE.format(reading.release)} takes the cluster's version, unless schedulerImage names another"
            yield warning("kube-scheduler", f"{image} beside an API server of {reading.version}", cure)


def definitions(reading: ClusterReading) -> Iterator[Finding]:
    """Whether the API server serves our kinds."""
    served = {one["name"] for one in readable(reading.kinds)}
    missing = [plural for plural in PLURALS if plural not in served]
    if missing:
        cure = f"{UPGRADE.format(reading.release)} --set crds.install=true, or kubectl apply --server-side -f crds"
        yield problem("CRDs", f"{contract.API_VERSION} does not serve {', '.join(missing)}", cure)
    else:
        yield ok("CRDs", f"{contract.API_VERSION} serves {', '.join(PLURALS)}")


def schemas(reading: ClusterReading) -> Iterator[Finding]:
    """Whether the CRDs have all the fields that this release knows."""
    lacking = [name for one in readable(reading.definitions) for name in _lacking(one)]
    if lacking:
        cure = "kubectl apply --server-side --force-conflicts -f crds, or upgrade the chart with crds.install=true"
        yield problem("CRD schemas", f"older than this command; fields are missing: {some(lacking)}", cure)
    else:
        yield ok("CRD schemas", f"have all fields of kompakt {version('kompakt-cli')}")


def _lacking(definition: Item) -> Iterator[str]:
    plural = definition["spec"]["names"]["plural"]
    served = {one["name"]: one for one in definition["spec"]["versions"] if one.get("served")}
    schema = ((served.get(contract.VERSION) or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    for top, kind in DECLARED.get(plural, {}).items():
        has = set(_properties((schema.get("properties") or {}).get(top) or {}, top))
        yield from (f"{plural} {path}" for path in _fields(inspect.type_info(kind), top) if path not in has)


def _properties(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths of a CRD's schema; a list's items have the list's path."""
    if "items" in schema:
        yield from _properties(schema["items"], path)
    for name, below in (schema.get("properties") or {}).items():
        yield f"{path}.{name}"
        yield from _properties(below, f"{path}.{name}")


def _fields(node: inspect.Type, path: str) -> Iterator[str]:
    """The same of what we declare."""
    if isinstance(node, inspect.UnionType):
        node = next(one for one in node.types if not isinstance(one, inspect.NoneType))
    if isinstance(node, inspect.Metadata):
        yield from _fields(node.type, path)
    elif isinstance(node, inspect.VarTupleType):
        yield from _fields(node.item_type, path)
    elif isinstance(node, inspect.StructType):
        for one in node.fields:
            yield f"{path}.{one.encode_name}"
            yield from _fields(one.type, f"{path}.{one.encode_name}")


def leases(reading: ClusterReading) -> Iterator[Finding]:
    """Whether one process of operator and scheduler is active: holds the Lease, renews it, and is a pod."""
    if only_reports(reading):
        yield ok("Leases", "none is needed: kompakt only reports and explains")
        return
    specs = {one["metadata"]["name"]: one.get("spec") or {} for one in readable(reading.leases)}
    pods = None if reading.lacking("parts") else {one["metadata"]["name"] for one in readable(reading.parts)}
    for name, part in LEASES.items():
        yield _lease(f"Lease {name}", specs.get(name), reading, pods, part)


def _lease(check: str, spec: Mapping[str, Any] | None, reading: ClusterReading, pods: set[str] | None, part: str) -> Finding:
    logs = f"kubectl logs -n {reading.release} -l {PART}={part} --all-containers --prefix says what keeps it from its Lease"
    holder = str((spec or {}).get("holderIdentity") or "")
    renewed = timestamps.seconds((spec or {}).get("renewTime"))
    if spec is None or not holder or renewed is None:
        return problem(check, "nobody holds it: no process is active", logs)
    age = reading.now - renewed
    said = f"held by {holder}, renewed {max(age, 0):.0f} s ago"
    if age > OLDEST_LEASE:
        return problem(check, f"{said}: nothing is decided", logs)
    if age < -SKEW_SECONDS:
        cure = "set the clock of that pod's node by NTP (timedatectl set-ntp true)"
        return warning(check, f"held by {holder}, renewed {-age:.0f} s in the future", cure)
    if pods is not None and holder.partition("_")[0] not in pods:
        cure = (
            f"wait until the Lease runs out ({(spec or {}).get('leaseDurationSeconds', 15)} s) or find out who else runs: {logs}"
        )
        return warning(check, f"{said}, which is no pod in namespace {reading.release}", cure)
    return ok(check, said)


def own_clock(reading: ClusterReading) -> Iterator[Finding]:
    """This machine's clock beside the API server's, which tells whole seconds."""
    said = f"{abs(reading.ahead):.0f} s {'ahead of' if reading.ahead > 0 else 'behind'} the API server's"
    if abs(reading.ahead) > SKEW_SECONDS:
        yield warning("clock of this machine", said, "set this machine's clock by NTP: timedatectl set-ntp true")
    else:
        yield ok("clock of this machine", f"at most {SKEW_SECONDS:.0f} s from the API server's")


def node_clocks(reading: ClusterReading) -> Iterator[Finding]:
    """kubelets write their own clock into their Leases."""
    ages = {one["metadata"]["name"]: _age(one, reading.now) for one in readable(reading.node_leases)}
    silent = sorted(name for name, age in ages.items() if age > NODE_SILENT_SECONDS)
    ahead = sorted(name for name, age in ages.items() if age < -SKEW_SECONDS)
    if silent:
        said = f"no heartbeat for more than {NODE_SILENT_SECONDS:.0f} s, or a clock behind: {some(silent)}"
        yield warning("node heartbeats", said, "kubectl describe node NODE; on the node: systemctl status kubelet, timedatectl")
    if ahead:
        cure = "set these nodes' clocks by NTP: timedatectl set-ntp true"
        yield warning("node clocks", f"ahead of the API server's by more than {SKEW_SECONDS:.0f} s: {some(ahead)}", cure)
    if not (silent or ahead):
        yield ok("node clocks", f"{len(ages)} nodes renewed their Leases within {NODE_SILENT_SECONDS:.0f} s, none in the future")


def _age(lease: Item, now: float) -> float:
    renewed = timestamps.seconds((lease.get("spec") or {}).get("renewTime"))
    return now - renewed if renewed is not None else float("inf")


def _minor(text: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
