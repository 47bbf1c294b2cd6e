"""The chart: renders, is least privileged, refuses wrong values, and carries the same CRDs as crds/."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kompakt_cli import access
from kompakt_core import contract
from tests.support.chart import CHART, WORKLOADS, Objects, container, helm, objects, of_kind, refusal, template

ROOT = Path(__file__).resolve().parents[2]
READERS = '[{"kind": "Group", "name": "ml", "apiGroup": "rbac.authorization.k8s.io"}]'
EXPLAIN = "kompakt-explain"
EVENT_WRITERS = ("kompakt-operator", "kompakt-device-plugin")


@pytest.fixture(scope="module")
def found() -> Objects:
    return objects()


def test_lint_finds_nothing() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_three_parts_are_there(found: Objects) -> None:
    assert of_kind(found, "Deployment", "DaemonSet").keys() == {name for _, name in WORKLOADS.values()}


def test_no_role_holds_a_wildcard_and_events_are_made_and_counted_only(found: Objects) -> None:
    rules = [(key, rule) for key, one in found.items() if key[0] in ("ClusterRole", "Role") for rule in one["rules"]]
    assert rules
    for key, rule in rules:
        assert not [field for field in ("apiGroups", "resources", "verbs") if "*" in rule[field]], (key, rule)
        assert not {"secrets", "configmaps"} & set(rule["resources"]), key
    events = [rule for (_, name), rule in rules if name in EVENT_WRITERS and "events" in rule["resources"]]
    assert events == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}] * 2


@pytest.mark.parametrize("part", WORKLOADS)
def test_every_pod_is_locked_down_and_only_the_device_plugin_is_root_or_sees_the_host(found: Objects, part: str) -> None:
    pod = template(found, part)["spec"]
    for one in pod["containers"]:
        context = one["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in context
        assert one["resources"]["limits"]["memory"]
    assert not pod.get("hostNetwork")
    if part == "devicePlugin":
        (plugin,) = pod["containers"]
        assert plugin["securityContext"]["runAsUser"] == 0
        writable = [mount["mountPath"] for mount in plugin["volumeMounts"] if not mount.get("readOnly")]
        assert writable == ["/var/lib/kubelet/device-plugins", "/tmp"]
        assert pod["hostPID"] is True
        assert "hostPID" not in template(objects("devicePlugin.seeProcesses=false"), part)["spec"]
    else:
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsGroup"]) == (True, 65532)
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        assert "hostPID" not in pod


def test_the_device_plugin_is_ready_only_when_it_serves_its_node(found: Objects) -> None:
    plugin = container(found, "devicePlugin", "device-plugin")
    paths = [plugin[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")]
    assert paths == ["/readyz", "/healthz"]


def test_with_nvml_the_container_runtime_brings_driver_and_gpus(found: Objects) -> None:
    pod = template(objects('devicePlugin.source="nvml"', 'devicePlugin.runtimeClassName="nvidia"'), "devicePlugin")["spec"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in pod["containers"][0]["env"]
    assert pod["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in template(found, "devicePlugin")["spec"]


def test_the_scheduler_is_configured_for_the_extender(found: Objects) -> None:
    configuration = yaml.safe_load(found["ConfigMap", "kompakt-scheduler"]["data"]["scheduler.yaml"])
    assert configuration["profiles"][0]["schedulerName"] == contract.SCHEDULER_NAME
    assert configuration["leaderElection"]["resourceName"] == contract.SCHEDULER_LEASE
    (extender,) = configuration["extenders"]
    assert extender["urlPrefix"] == f"http://127.0.0.1:{contract.VERBS_PORT}"
    assert extender["managedResources"][0]["name"] == contract.RESOURCE
    assert not extender.get("ignorable")


def test_people_reach_the_explain_api_by_its_service_and_role_alone(found: Objects) -> None:
    ((name, service),) = of_kind(found, "Service").items()
    assert name == access.DEFAULT_SERVICE
    (port,) = service["spec"]["ports"]
    assert port["name"] == "http"
    ports = [one for one in container(found, "scheduler", "extender")["ports"] if one["name"] == port["targetPort"]]
    assert ports == [{"name": "health", "containerPort": contract.HEALTH_PORT}]
    role, names = f"{EXPLAIN}-reader", [EXPLAIN, f"{EXPLAIN}:http", f"http:{EXPLAIN}:http"]
    rule = {"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": names, "verbs": ["get", "create"]}
    assert found["Role", role]["rules"] == [rule]
    bound = [one for one in of_kind(found, "RoleBinding").values() if one["roleRef"]["name"] == role]
    assert bound == [], "nobody has the role unless readers are named"
    subjects = objects(f"explain.readers={READERS}")["RoleBinding", role]["subjects"]
    assert subjects == yaml.safe_load(READERS)


def selected(policy: dict[str, Any], workload: dict[str, Any]) -> bool:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    return policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


def test_each_part_is_closed_by_one_policy_and_only_what_is_named_comes_in(found: Objects) -> None:
    policies, workloads = of_kind(found, "NetworkPolicy"), of_kind(found, "Deployment", "DaemonSet")
    by_workload = {name: [p for p, policy in policies.items() if selected(policy, one)] for name, one in workloads.items()}
    assert by_workload["kompakt-scheduler"] == [EXPLAIN]
    assert sorted(name for names in by_workload.values() for name in names) == sorted(policies)
    assert {len(names) for names in by_workload.values()} == {1}
    assert all((p["spec"]["policyTypes"], p["spec"]["ingress"]) == (["Ingress"], []) for p in policies.values())

    monitoring = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    settings = (
        'explain.networkPolicy.apiServers=["10.0.0.1/32"]',
        f"explain.networkPolicy.monitoring={monitoring}".replace("'", '"'),
    )
    opened = objects(*settings)["NetworkPolicy", EXPLAIN]["spec"]["ingress"]
    assert opened == [
        {"ports": [{"port": "health"}], "from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]},
        {"ports": [{"port": "health"}, {"port": "scheduler"}], "from": monitoring},
    ]
    ports = {port["name"] for one in template(found, "scheduler")["spec"]["containers"] for port in one.get("ports", ())}
    assert {port["port"] for rule in opened for port in rule["ports"]} <= ports, "a port no container has"
    assert of_kind(objects("explain.networkPolicy.enabled=false"), "NetworkPolicy") == {}


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ('explain.networkPolicy.apiServers=["10.0.0.1"]', "apiServers"),
        ('explain.readers=[{"kind": "Robot"}]', "kind"),
        ("operator.replicaCount=2", "replicaCount"),
        ('devicePlugin.source="smi"', "source"),
        ("scheduler.lease.duration=15", "duration"),
        ('consolidation.policy="dally"', "policy"),
        ('consolidation.waitSeconds.machine="soon"', "machine"),
        ("consolidation.levelFactors.rack=-1", "rack"),
        ("consolidation.overtakenAtMost=-1", "overtakenAtMost"),
        ('consolidation.preemption="sometimes"', "preemption"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, word: str) -> None:
    assert word in refusal(setting)


def test_two_replicas_share_a_budget_and_one_has_none(found: Objects) -> None:
    budgets, deployments = of_kind(found, "PodDisruptionBudget"), of_kind(found, "Deployment")
    assert budgets.keys() == deployments.keys()
    for name, deployment in deployments.items():
        budget, spec = budgets[name]["spec"], deployment["spec"]
        assert (spec["replicas"], budget["maxUnavailable"]) == (2, 1)
        (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
        assert budget["selector"] == spread["labelSelector"] == spec["selector"]
    assert of_kind(objects("operator.replicas=1", "scheduler.replicas=1"), "PodDisruptionBudget") == {}


def test_in_one_namespace_the_operator_has_roles_only() -> None:
    found = objects('operator.namespace="ml"')
    assert not [name for name in of_kind(found, "ClusterRole", "ClusterRoleBinding") if name.startswith("kompakt-operator")]
    (role,) = [one for one in of_kind(found, "Role").values() if one["metadata"].get("namespace") == "ml"]
    granted = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"trainingjobs", "pods"} <= granted
    assert not {"nodes", "namespaces", "gputopologies", "customresourcedefinitions"} & granted
    assert "--namespace=ml" in container(found, "operator", "operator")["args"]


def test_definitions_are_kept_on_uninstall_unless_asked(found: Objects) -> None:
    for one, kept in ((found, "keep"), (objects("crds.keep=false"), None)):
        definitions = of_kind(one, "CustomResourceDefinition").values()
        assert len(definitions) == 2
        assert {(d["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") for d in definitions} == {kept}
    assert of_kind(objects("crds.install=false"), "CustomResourceDefinition") == {}


def hooks(*settings: str) -> dict[str, dict[str, Any]]:
    """What is made before an uninstall, by kind."""
    notes = {key: one["metadata"].get("annotations") or {} for key, one in objects(*settings).items()}
    return {key[0]: objects(*settings)[key] for key, note in notes.items() if note.get("helm.sh/hook") == "pre-delete"}


def test_jobs_are_ended_before_an_uninstall_only_where_their_definition_goes() -> None:
    assert hooks() == hooks("crds.keep=false", "crds.install=false") == {}
    found = hooks("crds.keep=false")
    assert found.keys() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": ["kompakt.dev"], "resources": ["trainingjobs"], "verbs": ["list", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    assert all("hook-succeeded" in one["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for one in found.values())
    pod = found["Job"]["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], only["securityContext"]["readOnlyRootFilesystem"]) == (True, True)
    compile(only["command"][2], "remove.py", "exec")


def test_monitors_are_there_on_request_only(found: Objects) -> None:
    assert of_kind(found, "PodMonitor") == {}
    watched = of_kind(objects("monitoring.podMonitors=true"), "PodMonitor")
    assert watched.keys() == {name for _, name in WORKLOADS.values()}


def test_the_policies_name_our_own_accounts_and_all_of_our_annotations(found: Objects) -> None:
    policies = {name: one["spec"] for name, one in of_kind(found, "ValidatingAdmissionPolicy").items()}
    bound = {one["spec"]["policyName"] for one in of_kind(found, "ValidatingAdmissionPolicyBinding").values()}
    assert bound == policies.keys()
    text = yaml.safe_dump(policies, width=10000)
    accounts = of_kind(found, "ServiceAccount").keys() - {"kompakt-check"}
    assert set(re.findall(r"system:serviceaccount:kompakt-system:([a-z-]+)", text)) == accounts
    for name in ("kompakt-admission-pods", "kompakt-admission-bindings"):
        told = yaml.safe_dump(policies[name], width=10000)
        assert {one for one in contract.OUTPUT_ANNOTATIONS if one in told} == contract.OUTPUT_ANNOTATIONS


def test_the_chart_carries_the_same_definitions() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    carried = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*.yaml")}
    assert carried == written != {}
