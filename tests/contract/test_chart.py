"""The chart: renders, is least privileged, refuses wrong values, and carries the same CRDs as crds/."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kompakt_cli import access
from kompakt_core import contract
from tools.kube import binaries

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "kompakt"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(binaries.find("helm")), *arguments], capture_output=True, text=True, check=False)


def render(*arguments: str) -> list[dict[str, Any]]:
    done = helm("template", "kompakt", str(CHART), "--namespace", "kompakt-system", "--kube-version", "1.37.1", *arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return render()


def of_kind(objects: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [found for found in objects if found["kind"] in kinds]


def pod_templates(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found["spec"]["template"]["spec"] for found in of_kind(objects, "Deployment", "DaemonSet")}


def test_lint_finds_nothing() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_three_parts_are_there(objects: list[dict[str, Any]]) -> None:
    assert set(pod_templates(objects)) == {"kompakt-operator", "kompakt-scheduler", "kompakt-device-plugin"}


def test_no_role_holds_a_wildcard(objects: list[dict[str, Any]]) -> None:
    roles = of_kind(objects, "ClusterRole", "Role")
    assert roles
    for role in roles:
        for rule in role["rules"]:
            for field in ("apiGroups", "resources", "verbs"):
                assert "*" not in rule[field], (role["metadata"]["name"], rule)
            assert not {"secrets", "configmaps"} & set(rule["resources"]), role["metadata"]["name"]


def test_who_reports_events_may_make_and_count_them_and_nothing_more(objects: list[dict[str, Any]]) -> None:
    rules = {
        role["metadata"]["name"]: rule
        for role in of_kind(objects, "ClusterRole", "Role")
        for rule in role["rules"]
        if "events" in rule["resources"] and role["metadata"]["name"] in ("kompakt-operator", "kompakt-device-plugin")
    }
    wanted = {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}
    assert rules == {"kompakt-operator": wanted, "kompakt-device-plugin": wanted}


def test_every_container_is_locked_down(objects: list[dict[str, Any]]) -> None:
    for name, pod in pod_templates(objects).items():
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name


def test_only_the_device_plugin_runs_as_root_or_sees_the_host(objects: list[dict[str, Any]]) -> None:
    for name, pod in pod_templates(objects).items():
        host_paths = [volume for volume in pod["volumes"] if "hostPath" in volume]
        assert not pod.get("hostNetwork")
        if name == "kompakt-device-plugin":
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsGroup"] == 65532, name
        assert host_paths == [], name


def test_the_scheduler_is_configured_for_the_extender(objects: list[dict[str, Any]]) -> None:
    maps = {found["metadata"]["name"]: found for found in of_kind(objects, "ConfigMap")}
    configuration = yaml.safe_load(maps["kompakt-scheduler"]["data"]["scheduler.yaml"])
    assert configuration["profiles"][0]["schedulerName"] == contract.SCHEDULER_NAME
    assert configuration["leaderElection"]["resourceName"] == contract.SCHEDULER_LEASE
    extender = configuration["extenders"][0]
    assert extender["urlPrefix"] == f"http://127.0.0.1:{contract.VERBS_PORT}"
    assert extender["managedResources"][0]["name"] == contract.RESOURCE
    assert not extender.get("ignorable")


def test_people_reach_the_explain_api_by_its_service_and_role_alone(objects: list[dict[str, Any]]) -> None:
    (service,) = of_kind(objects, "Service")
    assert service["metadata"]["name"] == access.DEFAULT_SERVICE
    assert [port["name"] for port in service["spec"]["ports"]] == ["http"]
    extender = next(c for c in pod_templates(objects)["kompakt-scheduler"]["containers"] if c["name"] == "extender")
    assert [port for port in extender["ports"] if port["name"] == service["spec"]["ports"][0]["targetPort"]] == [
        {"name": "health", "containerPort": contract.HEALTH_PORT}
    ]
    (role,) = [found for found in of_kind(objects, "Role") if found["metadata"]["name"] == "kompakt-explain-reader"]
    names = ["kompakt-explain", "kompakt-explain:http", "http:kompakt-explain:http"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": names, "verbs": ["get", "create"]}
    ]
    bound = [found for found in of_kind(objects, "RoleBinding") if found["roleRef"]["name"] == "kompakt-explain-reader"]
    assert bound == [], "nobody has the role unless readers are named"


def test_readers_get_the_role() -> None:
    reader = [
        "explain.readers[0].kind=Group",
        "explain.readers[0].name=ml",
        "explain.readers[0].apiGroup=rbac.authorization.k8s.io",
    ]
    objects = render(*(f"--set={setting}" for setting in reader))
    (binding,) = [found for found in of_kind(objects, "RoleBinding") if found["metadata"]["name"] == "kompakt-explain-reader"]
    assert binding["subjects"] == [{"kind": "Group", "name": "ml", "apiGroup": "rbac.authorization.k8s.io"}]


def policy_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The NetworkPolicy of the scheduler's pods."""
    (found,) = [policy for policy in of_kind(objects, "NetworkPolicy") if policy["metadata"]["name"] == "kompakt-explain"]
    return found


def test_every_part_is_closed_and_each_policy_finds_its_pods(objects: list[dict[str, Any]]) -> None:
    policies = of_kind(objects, "NetworkPolicy")
    workloads = {found["metadata"]["name"]: found for found in of_kind(objects, "Deployment", "DaemonSet")}
    for workload in workloads.values():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        own = [p for p in policies if p["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
        assert [policy["spec"]["ingress"] for policy in own] == [[]], workload["metadata"]["name"]


def test_other_pods_are_kept_out_and_only_what_is_named_comes_in(objects: list[dict[str, Any]]) -> None:
    closed = policy_of(objects)
    (scheduler,) = [found for found in of_kind(objects, "Deployment") if found["metadata"]["name"] == "kompakt-scheduler"]
    labels = scheduler["spec"]["template"]["metadata"]["labels"]
    assert closed["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    others = [one for one in of_kind(objects, "Deployment", "DaemonSet") if one is not scheduler]
    for other in others:
        assert not closed["spec"]["podSelector"]["matchLabels"].items() <= other["spec"]["template"]["metadata"]["labels"].items()
    assert (closed["spec"]["policyTypes"], closed["spec"]["ingress"]) == (["Ingress"], [])
    monitoring = "explain.networkPolicy.monitoring[0].podSelector.matchLabels.app=prometheus"
    opened = policy_of(render("--set=explain.networkPolicy.apiServers={10.0.0.1/32}", f"--set={monitoring}"))
    assert opened["spec"]["ingress"] == [
        {"ports": [{"port": "health"}], "from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]},
        {
            "ports": [{"port": "health"}, {"port": "scheduler"}],
            "from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        },
    ]
    ports = [port["name"] for one in scheduler["spec"]["template"]["spec"]["containers"] for port in one.get("ports", ())]
    assert {port["port"] for rule in opened["spec"]["ingress"] for port in rule["ports"]} <= set(ports), "a port no container has"
    assert of_kind(render("--set=explain.networkPolicy.enabled=false"), "NetworkPolicy") == []


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("explain.networkPolicy.apiServers={10.0.0.1}", "apiServers"),
        ("explain.readers[0].kind=Robot", "kind"),
        ("operator.replicaCount=2", "replicaCount"),
        ("devicePlugin.source=smi", "source"),
        ("scheduler.lease.duration=15", "duration"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, word: str) -> None:
    done = helm("template", "kompakt", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert word in done.stderr


def test_two_replicas_share_a_budget_and_one_has_none(objects: list[dict[str, Any]]) -> None:
    budgets = {found["metadata"]["name"]: found["spec"] for found in of_kind(objects, "PodDisruptionBudget")}
    deployments = {found["metadata"]["name"]: found["spec"] for found in of_kind(objects, "Deployment")}
    assert budgets.keys() == deployments.keys()
    for name, spec in deployments.items():
        assert (spec["replicas"], budgets[name]["maxUnavailable"]) == (2, 1)
        assert budgets[name]["selector"] == spec["selector"]
        (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"] == spec["selector"]
    assert of_kind(render("--set=operator.replicas=1,scheduler.replicas=1"), "PodDisruptionBudget") == []


def test_in_one_namespace_the_operator_has_roles_only() -> None:
    objects = render("--set=operator.namespace=ml")
    cluster_wide = of_kind(objects, "ClusterRole", "ClusterRoleBinding")
    assert not [found for found in cluster_wide if found["metadata"]["name"].startswith("kompakt-operator")]
    (role,) = [found for found in of_kind(objects, "Role") if found["metadata"].get("namespace") == "ml"]
    granted = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"trainingjobs", "pods"} <= granted
    assert not {"nodes", "namespaces", "gputopologies", "customresourcedefinitions"} & granted
    (operator,) = [found for found in of_kind(objects, "Deployment") if found["metadata"]["name"] == "kompakt-operator"]
    assert "--namespace=ml" in operator["spec"]["template"]["spec"]["containers"][0]["args"]


def test_definitions_are_kept_on_uninstall_unless_asked(objects: list[dict[str, Any]]) -> None:
    for found, kept in ((objects, "keep"), (render("--set=crds.keep=false"), None)):
        definitions = of_kind(found, "CustomResourceDefinition")
        assert len(definitions) == 2
        assert {(d["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") for d in definitions} == {kept}
    assert of_kind(render("--set=crds.install=false"), "CustomResourceDefinition") == []


def test_jobs_are_ended_before_an_uninstall_only_where_their_definition_goes() -> None:
    def hooks(*settings: str) -> dict[str, dict[str, Any]]:
        found = [one for one in render(*settings) if one["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-delete"]
        return {one["kind"]: one for one in found}

    assert hooks() == hooks("--set=crds.keep=false,crds.install=false") == {}
    found = hooks("--set=crds.keep=false")
    assert found.keys() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": ["kompakt.dev"], "resources": ["trainingjobs"], "verbs": ["list", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    assert all("hook-succeeded" in one["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for one in found.values())
    pod = found["Job"]["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]) == (
        True,
        True,
    )
    compile(pod["containers"][0]["command"][2], "remove.py", "exec")


def test_monitors_are_there_on_request_only(objects: list[dict[str, Any]]) -> None:
    assert of_kind(objects, "PodMonitor") == []
    watched = of_kind(render("--set=monitoring.podMonitors=true"), "PodMonitor")
    assert {found["metadata"]["name"] for found in watched} == {"kompakt-operator", "kompakt-scheduler", "kompakt-device-plugin"}


def test_the_policies_name_our_own_accounts_and_all_of_our_annotations(objects: list[dict[str, Any]]) -> None:
    policies = {found["metadata"]["name"]: found["spec"] for found in of_kind(objects, "ValidatingAdmissionPolicy")}
    bound = {found["spec"]["policyName"] for found in of_kind(objects, "ValidatingAdmissionPolicyBinding")}
    assert bound == policies.keys()
    text = yaml.safe_dump(policies, width=10000)
    accounts = {f["metadata"]["name"] for f in of_kind(objects, "ServiceAccount") if f["metadata"]["name"] != "kompakt-check"}
    assert set(re.findall(r"system:serviceaccount:kompakt-system:([a-z-]+)", text)) == accounts
    told = yaml.safe_dump(policies["kompakt-admission-pods"], width=10000)
    assert {name for name in contract.OUTPUT_ANNOTATIONS if name in told} == contract.OUTPUT_ANNOTATIONS
    bindings = yaml.safe_dump(policies["kompakt-admission-bindings"], width=10000)
    assert {name for name in contract.OUTPUT_ANNOTATIONS if name in bindings} == contract.OUTPUT_ANNOTATIONS


def test_the_chart_carries_the_same_definitions() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    carried = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*.yaml")}
    assert written
    assert carried == written
