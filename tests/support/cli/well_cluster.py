"""A cluster where all is well, as `kompakt doctor` reads one, and the objects that it is made of."""

from pathlib import Path
from typing import Any

import yaml

from kompakt_cli import doctor_cluster, doctor_rights
from kompakt_cli.doctor_reading import ClusterReading, Item
from kompakt_cli.finding import Finding, Health
from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from kompakt_core.topology.machines import machine
from kompakt_core.topology.wire import graph_to_spec

ROOT = Path(__file__).resolve().parents[3]
NOW = 1_800_000_000.0
GRAPH = machine("dgx1-v100")


def part(name: str, **spec: Any) -> Item:
    labels = {
        "app.kubernetes.io/name": "kompakt",
        "app.kubernetes.io/component": name,
        "app.kubernetes.io/version": "0.1.0",
    }
    container = {"name": name, "image": f"localhost/kompakt-{name}:0.1.0", "args": spec.pop("args", [])}
    pod = {"serviceAccountName": f"kompakt-{name}", "containers": [container, *spec.pop("more", [])]}
    return {
        "metadata": {"name": f"kompakt-{name}", "namespace": "kompakt-system", "uid": name, "labels": labels},
        "spec": {"replicas": 2, "template": {"spec": pod}},
        "status": spec.pop("status", {"readyReplicas": 2}),
    }


def plugin(*args: str) -> Item:
    status = {"desiredNumberScheduled": 1, "numberReady": 1}
    found = part("device-plugin", status=status, args=["--source=text", *args])
    found["spec"]["template"]["spec"]["volumes"] = [{"name": "machines", "configMap": {"name": "kompakt-machines"}}]
    return found


def kube_scheduler(version: str) -> Item:
    return part("scheduler", more=[{"name": "kube-scheduler", "image": f"registry.k8s.io/kube-scheduler:{version}"}])


def lease(name: str, holder: str, age: float) -> Item:
    renewed = timestamps.encode_micro(NOW - age)
    return {"metadata": {"name": name}, "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}


def node(name: str = "dgx-0", *, labels: dict[str, str] | None = None, **capacity: str) -> Item:
    amounts = {c.RESOURCE: "8", **{key.replace("__", "/").replace("_", "."): value for key, value in capacity.items()}}
    told = {c.LABEL_MACHINE: "box"} if labels is None else labels
    return {"metadata": {"name": name, "uid": name, "labels": told}, "status": {"capacity": amounts, "allocatable": amounts}}


def topology(name: str = "dgx-0", *conditions: tuple[str, str, str], **spec: Any) -> Item:
    told = [("Ready", "True", "Reported"), ("Degraded", "False", "AllHealthy"), ("Conflict", "False", "NoOtherPlugin")]
    rows = {row[0]: row for row in [*told, *conditions]}
    written = [dict(zip(("type", "status", "reason", "message"), (*row, "said"), strict=True)) for row in rows.values()]
    made = {**graph_to_spec(GRAPH, node_uid=name, source="text"), **spec}
    return {"metadata": {"name": name}, "spec": made, "status": {"conditions": written}}


def pod(name: str, age: float, scheduler: str = c.SCHEDULER_NAME, where: str = "") -> Item:
    meta = {"name": name, "namespace": "team", "creationTimestamp": timestamps.encode(NOW - age)}
    resources = {"limits": {c.RESOURCE: "1"}}
    return {"metadata": meta, "spec": {"schedulerName": scheduler, "nodeName": where, "containers": [{"resources": resources}]}}


def definition(path: Path) -> Item:
    found: Item = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


DEFINITIONS = tuple(definition(path) for path in sorted((ROOT / "crds").glob("*.yaml")))
DEPLOYMENTS = (part("operator"), kube_scheduler("v1.37.1"))
WELL = ClusterReading(
    "kompakt-system",
    "team",
    "v1.37.1",
    NOW,
    kinds=tuple({"name": one["spec"]["names"]["plural"]} for one in DEFINITIONS),
    definitions=DEFINITIONS,
    deployments=DEPLOYMENTS,
    daemonsets=(plugin(),),
    parts=tuple({"metadata": {**one["metadata"], "name": f"{one['metadata']['name']}-1"}} for one in DEPLOYMENTS),
    machines=({"data": {"box": "dgx1-v100"}},),
    leases=(lease(c.OPERATOR_LEASE, "kompakt-operator-1", 2), lease(c.SCHEDULER_LEASE, "kompakt-scheduler-1_uid", 3)),
    node_leases=(lease("dgx-0", "dgx-0", 9),),
    nodes=(node(),),
    topologies=(topology(),),
    pods=(pod("young", 10), pod("placed", 9999, where="dgx-0")),
    rights=dict.fromkeys(
        (*doctor_rights.own_rights("team", "kompakt-system"), *doctor_rights.accounts_rights(DEPLOYMENTS)), True
    ),
)


def unwell(reading: ClusterReading) -> list[Finding]:
    return [one for one in doctor_cluster.findings(reading) if one.health is not Health.OK]
