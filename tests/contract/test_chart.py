"""The chart: renders, is least privileged, refuses wrong values, and carries the same CRDs as crds/."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kompakt_cli import access
from kompakt_core import contract
from tests.support.chart import CHART, WORKLOADS, Objects, container, helm, objects, of_kind, refusal, template, templated

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
        fields = ("nonResourceURLs", "verbs") if "nonResourceURLs" in rule else ("apiGroups", "resources", "verbs")
        assert not [field for field in fields if [value for value in rule[field] if "*" in value]], (key, rule)
        assert not {"secrets", "configmaps"} & set(rule.get("resources", ())), key
    events = [rule for (_, name), rule in rules if name in EVENT_WRITERS and "events" in rule.get("resources", ())]
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


@pytest.mark.parametrize("part", WORKLOADS)
def test_every_container_tells_when_it_is_ready_on_a_port_that_it_has(found: Objects, part: str) -> None:
    for one in template(found, part)["spec"]["containers"]:
        asked = one["readinessProbe"]["httpGet"]
        assert asked["path"] == "/readyz"
        assert asked["port"] in {port["name"] for port in one["ports"]}
        assert asked.get("scheme", "HTTP") == ("HTTPS" if one["name"] == "kube-scheduler" else "HTTP")
        assert one["livenessProbe"]["httpGet"] != asked, "who is not ready is not restarted for it"


def test_with_nvml_the_container_runtime_brings_driver_and_gpus(found: Objects) -> None:
    pod = template(objects('devicePlugin.source="nvml"', 'devicePlugin.runtimeClassName="nvidia"'), "devicePlugin")["spec"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in pod["containers"][0]["env"]
    assert pod["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in template(found, "devicePlugin")["spec"]


def test_with_the_drivers_folder_named_no_variable_brings_the_plugin_its_driver() -> None:
    pod = template(objects('devicePlugin.source="nvml"', 'devicePlugin.driverFolder="/usr/lib64"'), "devicePlugin")["spec"]
    plugin = pod["containers"][0]
    assert not [variable for variable in plugin["env"] if variable["name"].startswith("NVIDIA_")]
    assert "--nvml-library=/driver/libnvidia-ml.so.1" in plugin["args"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "driver")
    assert volume["hostPath"] == {"path": "/usr/lib64", "type": "Directory"}
    (mount,) = (mount for mount in plugin["volumeMounts"] if mount["name"] == "driver")
    assert (mount["mountPath"], mount["readOnly"]) == ("/driver", True)
    security = plugin["securityContext"]
    assert (security["privileged"], security["readOnlyRootFilesystem"]) == (True, True), "else no device file opens"


STRICT = ('isolation="Strict"', 'devicePlugin.source="nvml"', 'devicePlugin.driverFolder="/usr/lib64"')


def test_beside_a_privileged_plugin_a_container_without_privileges_asks_for_gpus() -> None:
    pod = template(objects(*STRICT[1:]), "devicePlugin")["spec"]
    plugin, probe = pod["containers"]
    assert probe["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert probe["securityContext"]["runAsNonRoot"]
    assert probe["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in probe["securityContext"]
    assert [mount["name"] for mount in probe["volumeMounts"]] == ["probe"], "what it sees is shown by the runtime alone"
    (mount,) = (one for one in plugin["volumeMounts"] if one["name"] == "probe")
    assert (mount["readOnly"], f"{mount['mountPath']}/shown.json") == (True, probe["command"][-1])
    assert {"--isolation=default", f"--isolation-probe={probe['command'][-1]}"} <= set(plugin["args"])


def test_a_plugin_that_asks_by_the_variable_itself_looks_at_what_it_was_shown() -> None:
    pod = template(objects(STRICT[1]), "devicePlugin")["spec"]
    (plugin,) = pod["containers"]
    assert "--isolation-probe=/dev" in plugin["args"]


def test_strict_isolation_looks_at_the_toolkits_configuration_too() -> None:
    pod = template(objects(*STRICT), "devicePlugin")["spec"]
    (volume,) = (one["hostPath"]["path"] for one in pod["volumes"] if one["name"] == "toolkit")
    assert volume == "/etc/nvidia-container-runtime"
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "toolkit")
    assert mount["readOnly"]
    assert {"--isolation=strict", f"--toolkit-dir={mount['mountPath']}"} <= set(pod["containers"][0]["args"])
    assert "toolkit" not in [one["name"] for one in template(objects(*STRICT[1:]), "devicePlugin")["spec"]["volumes"]]


@pytest.mark.parametrize("told", [STRICT[:2], (*STRICT, 'devicePlugin.cdi="never"')], ids=["by the variable", "by device files"])
def test_strict_isolation_is_refused_where_the_plugin_itself_goes_by_the_variable(told: tuple[str, ...]) -> None:
    assert "isolation: Strict needs devicePlugin.driverFolder" in refusal(*told)


def test_another_library_may_lie_in_the_drivers_folder_under_another_name() -> None:
    told = ('devicePlugin.source="nvml"', 'devicePlugin.driverFolder="/opt"', 'devicePlugin.nvmlLibrary="/driver/libother.so"')
    plugin = container(objects(*told), "devicePlugin", "device-plugin")
    assert [one for one in plugin["args"] if one.startswith("--nvml-library")] == ["--nvml-library=/driver/libother.so"]


def test_kube_scheduler_ends_within_seconds_beside_an_extender_that_is_gone(found: Objects) -> None:
    extender, scheduler = template(found, "scheduler")["spec"]["containers"]
    assert (extender["name"], scheduler["name"]) == ("extender", "kube-scheduler"), "kubelet starts them in this order"
    probe = scheduler["livenessProbe"]
    assert probe["httpGet"] == scheduler["startupProbe"]["httpGet"]
    assert probe["httpGet"] == {"path": "/schedulerz", "port": extender["ports"][0]["containerPort"]}
    assert probe["periodSeconds"] * probe["failureThreshold"] < 10


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
    reader, caller, names = f"{EXPLAIN}-reader", f"{EXPLAIN}-caller", [EXPLAIN, f"{EXPLAIN}:http", f"http:{EXPLAIN}:http"]
    proxy = {"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": names, "verbs": ["get", "create"]}
    token = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [reader], "verbs": ["create"]}
    assert found["Role", caller]["rules"] == [proxy]
    assert found["Role", reader]["rules"] == [token]
    bound = [one for one in of_kind(found, "RoleBinding").values() if one["roleRef"]["name"] in (reader, caller)]
    assert bound == [], "nobody has the roles unless readers or callers are named"
    people, others = yaml.safe_load(READERS), [{"kind": "Group", "name": "system:authenticated"}]
    open_ = objects(f"explain.readers={READERS}", f"explain.callers={others}".replace("'", '"'))
    assert open_["RoleBinding", reader]["subjects"] == people
    assert open_["RoleBinding", caller]["subjects"] == people + others


def test_the_account_of_readers_may_be_told_and_nothing_else(found: Objects) -> None:
    account = {"kind": "ServiceAccount", "name": f"{EXPLAIN}-reader", "namespace": "kompakt-system"}
    bindings = of_kind(found, "ClusterRoleBinding", "RoleBinding").values()
    (binding,) = [one for one in bindings if account in one["subjects"]]
    resources = [f"{plural}/{contract.SUBRESOURCE_EXPLAIN}" for plural in (contract.JOB_PLURAL, contract.TOPOLOGY_PLURAL)]
    rule = {"apiGroups": [contract.GROUP], "resources": resources, "verbs": ["get"]}
    assert found["ClusterRole", binding["roleRef"]["name"]]["rules"] == [rule]
    viewers = found["ClusterRole", "kompakt-jobs-view"]["rules"]
    assert set(resources) <= {name for one in viewers for name in one["resources"]}, "whoever views a namespace is told of it"


def test_figures_are_closed_and_who_may_read_them_is_asked_of_the_api_server(found: Objects) -> None:
    assert found["ClusterRole", "kompakt-metrics-reader"]["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert ("ClusterRoleBinding", "kompakt-metrics-reader") not in found
    asking = {subject["name"] for subject in found["ClusterRoleBinding", "kompakt-reviews"]["subjects"]}
    assert asking == {"kompakt-operator", "kompakt-device-plugin"}, "the scheduler's account may by system:kube-scheduler"
    told = {rule["resources"][0]: rule["verbs"] for rule in found["ClusterRole", "kompakt-reviews"]["rules"]}
    assert told == {"tokenreviews": ["create"], "subjectaccessreviews": ["create"]}
    plain_chart = objects("monitoring.plain=true")
    assert not [name for kind, name in plain_chart if name in ("kompakt-reviews", "kompakt-metrics-reader")]


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
        ("consolidation.reservedSeconds=0", "reservedSeconds"),
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
        assert len(definitions) == 4
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


def test_the_alert_about_parts_looks_for_those_of_this_release() -> None:
    switches = ("monitoring.rules=true", "monitoring.podMonitors=true", "image.registry=localhost")
    done = helm("template", "gpus", str(CHART), "--kube-version=v1.37.1", *(f"--set={one}" for one in switches))
    made = [one for one in yaml.safe_load_all(done.stdout) if one]
    (rules,) = (one["spec"]["groups"] for one in made if one["kind"] == "PrometheusRule")
    (looks,) = (rule["expr"] for group in rules for rule in group["rules"] if rule["alert"] == "KompaktPartDown")
    (pattern,) = re.findall(r'job=~"(.*)"', looks)
    jobs = {f"default/{one['metadata']['name']}" for one in made if one["kind"] == "PodMonitor"}
    assert {job for job in jobs if re.fullmatch(pattern, job)} == jobs - {"default/gpus-workers"}


def test_without_a_place_for_images_the_install_ends_with_what_to_do() -> None:
    done = helm("template", "kompakt", str(CHART), "--kube-version=v1.37.1")
    assert done.returncode != 0
    words = ("image.registry is not set", "no images of kompakt are published", "docs/install.md", "--set image.registry=")
    assert [one for one in words if one not in done.stderr] == []


def test_monitors_are_there_on_request_only(found: Objects) -> None:
    assert of_kind(found, "PodMonitor") == {}
    watched = of_kind(objects("monitoring.podMonitors=true"), "PodMonitor")
    assert watched.keys() == {name for _, name in WORKLOADS.values()} | {"kompakt-workers"}
    workers = watched["kompakt-workers"]["spec"]
    assert workers["selector"]["matchExpressions"] == [{"key": contract.LABEL_JOB_UID, "operator": "Exists"}]
    assert (workers["namespaceSelector"], workers["podMetricsEndpoints"][0]["port"]) == (
        {"any": True},
        contract.METRICS_PORT_NAME,
    )
    also = of_kind(objects("monitoring.podMonitors=true", 'monitoring.kubeSchedulerScrapeClass="api"'), "PodMonitor")
    assert also.keys() - watched.keys() == {"kompakt-kube-scheduler"}


def test_alerts_and_dashboards_are_there_on_request_only(found: Objects) -> None:
    assert of_kind(found, "PrometheusRule") == {}
    settings = ("monitoring.rules=true", "monitoring.dashboards=true", 'monitoring.runbooks="https://docs.example.org/runbooks/"')
    asked = objects(*settings)
    rules = [rule for group in asked["PrometheusRule", "kompakt-alerts"]["spec"]["groups"] for rule in group["rules"]]
    written = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert [rule["expr"] for rule in rules] == [rule["expr"] for group in written["groups"] for rule in group["rules"]]
    assert all(rule["annotations"]["runbook_url"].startswith("https://docs.example.org/runbooks/#kompakt") for rule in rules)
    reporting = objects(*settings, 'allocation="Report"', 'devicePlugin.resourceName="nvidia.com/gpu"')
    groups = [group["name"] for group in reporting["PrometheusRule", "kompakt-alerts"]["spec"]["groups"]]
    assert groups == ["kompakt-parts", "kompakt-device-plugin", "kompakt-training"], "nobody is missed who was not installed"
    boards = {name: one["data"] for (kind, name), one in asked.items() if kind == "ConfigMap" and "dashboard" in name}
    files = {f"kompakt-{file.name}": file.read_text().strip() for file in (CHART / "files" / "dashboards").iterdir()}
    assert {key: text for data in boards.values() for key, text in data.items()} == files
    assert not [name for kind, name in found if "dashboard" in name]


def test_the_policies_name_our_own_accounts_and_all_of_our_annotations(found: Objects) -> None:
    policies = {name: one["spec"] for name, one in of_kind(found, "ValidatingAdmissionPolicy").items()}
    bound = {one["spec"]["policyName"] for one in of_kind(found, "ValidatingAdmissionPolicyBinding").values()}
    assert bound == policies.keys()
    text = yaml.safe_dump(policies, width=10000)
    accounts = of_kind(found, "ServiceAccount").keys() - {f"{EXPLAIN}-reader"} | {"kompakt-removal"}
    assert set(re.findall(r"system:serviceaccount:kompakt-system:([a-z-]+)", text)) == accounts
    for name in ("kompakt-admission-pods", "kompakt-admission-bindings", "kompakt-admission-scheduler"):
        told = yaml.safe_dump(policies[name], width=10000)
        assert {one for one in contract.OUTPUT_ANNOTATIONS if one in told} == contract.OUTPUT_ANNOTATIONS


def test_the_chart_carries_the_same_definitions() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    carried = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*.yaml")}
    assert carried == written != {}


NAMED = 'devicePlugin.resourceName="nvidia.com/gpu"'
MUTATING = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
KEEP = {"helm.sh/resource-policy": "keep"}


ALWAYS, SCHEDULER_NAME = {"kompakt-admission-gangs", "kompakt-admission-compression"}, "kompakt-admission-scheduler-name"


def mutating(found: Objects) -> set[str]:
    """Names of policies that change pods; each has its binding, of that name."""
    policies, bindings = (of_kind(found, kind) for kind in MUTATING)
    assert policies.keys() == bindings.keys()
    assert all(binding["spec"]["policyName"] == name for name, binding in bindings.items())
    return set(policies)


def test_pods_get_kompakts_scheduler_where_their_resource_is_not_kompakts_alone(found: Objects) -> None:
    assert mutating(found) == ALWAYS
    named = objects(NAMED, 'admission.exemptNamespaces=["theirs"]')
    assert mutating(named) == {*ALWAYS, SCHEDULER_NAME}
    for name in (SCHEDULER_NAME, "kompakt-admission-gangs"):
        binding = named[MUTATING[1], name]
        (excepted,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert (excepted["operator"], excepted["values"]) == ("NotIn", ["theirs"])
    assert mutating(objects(NAMED, "admission.setSchedulerName=false")) == ALWAYS


def test_pods_of_gangs_bring_gate_and_scheduler_themselves_where_no_policy_can_give_them() -> None:
    done = templated(version="v1.35.1")
    assert done.returncode == 0, done.stderr
    assert "MutatingAdmissionPolicy" not in done.stdout


def test_what_binds_pods_to_kompakts_scheduler_goes_with_the_release_under_nvidias_name(found: Objects) -> None:
    def kept(objects: Objects, name: str) -> bool:
        return any(one["metadata"].get("annotations") == KEEP for (_, own), one in objects.items() if own == name)

    assert kept(found, "kompakt-admission-gpus")
    named = objects(NAMED)
    assert ("ValidatingAdmissionPolicy", "kompakt-admission-gpus") in named
    assert not kept(named, "kompakt-admission-gpus")
    assert kept(named, "kompakt-admission-pods"), "what keeps others from kompakt's annotations stays with the pods"
    assert not any(one["metadata"].get("annotations") == KEEP for (kind, _), one in named.items() if kind in MUTATING)


def test_a_cluster_without_mutating_policies_is_told_what_to_set() -> None:
    done = templated(NAMED, version="v1.35.1")
    assert done.returncode
    assert "this cluster has v1.35.1. With admission.setSchedulerName=false" in done.stderr
    assert templated(NAMED, "admission.setSchedulerName=false", version="v1.35.1").returncode == 0
