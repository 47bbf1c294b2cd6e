"""The chart's values: each lands where it should and nowhere else, none is ignored, and an unknown one is refused by name."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, WORKLOADS, Objects, container, json_of, objects, of_kind, refusal, rendered, template

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
# The container that a workload's own values are about, and the names of its values for resources, by container.
MAIN = {"operator": "operator", "scheduler": "extender", "devicePlugin": "device-plugin"}
RESOURCES = {
    "operator": {"operator": "resources"},
    "scheduler": {"kube-scheduler": "schedulerResources", "extender": "extenderResources"},
    "devicePlugin": {"device-plugin": "resources"},
}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}
PLACE = {
    "nodeSelector": {"pool": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": AFFINITY,
}
SPREAD = {"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}
DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize("part", WORKLOADS)
class TestWorkload:
    """The values of one workload, all at once."""

    @pytest.fixture
    def values(self, part: str) -> dict[str, Any]:
        sizes = {
            name: {"requests": {"cpu": f"{number + 7}m"}, "limits": {"memory": f"{number + 70}Mi"}}
            for number, name in enumerate(RESOURCES[part].values())
        }
        own = {"podLabels": {"team": "ml"}, "podAnnotations": {"note": "x"}, "extraEnv": [{"name": "TZ", "value": "UTC"}]}
        return {**PLACE, **({} if part == "devicePlugin" else SPREAD), **own, **sizes}

    @pytest.fixture
    def found(self, part: str, values: dict[str, Any]) -> Objects:
        return objects(*(json_of(f"{part}.{name}", value) for name, value in values.items()))

    def test_its_pods_go_where_the_values_say(self, part: str, values: dict[str, Any], found: Objects) -> None:
        pod = template(found, part)["spec"]
        wanted = {name: values[name] for name in ("nodeSelector", "tolerations", "affinity", *SPREAD) if name in values}
        assert {name: pod[name] for name in wanted} == wanted

    def test_its_containers_get_their_own_resources(self, part: str, values: dict[str, Any], found: Objects) -> None:
        for name, value in RESOURCES[part].items():
            default = VALUES[part][value]
            got = container(found, part, name)["resources"]
            assert got["requests"] == {**default["requests"], **values[value]["requests"]}
            assert got["limits"] == {**default["limits"], **values[value]["limits"]}

    def test_labels_annotations_and_environment_are_added(self, part: str, values: dict[str, Any], found: Objects) -> None:
        before, after = template(objects(), part)["metadata"], template(found, part)["metadata"]
        assert after["labels"] == {**before["labels"], "team": "ml"}
        assert after["annotations"] == {**(before.get("annotations") or {}), "note": "x"}
        plain, told = (container(one, part, MAIN[part])["env"] for one in (objects(), found))
        assert told == [*plain, *values["extraEnv"]]

    def test_nothing_else_changes(self, part: str, found: Objects) -> None:
        plain, kind = objects(), WORKLOADS[part]
        check = ("Pod", "kompakt-check")  # stands where the operator stands, and is as large
        changed = {key for key in plain if plain[key] != found[key]}
        assert plain.keys() == found.keys()
        assert changed == {kind, *([check] if part == "operator" else [])}
        assert plain[kind]["spec"]["selector"] == found[kind]["spec"]["selector"], "a selector cannot be changed in an upgrade"


def containers(found: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every container of the chart with the name of its pod."""
    for part in WORKLOADS:
        for one in template(found, part)["spec"]["containers"]:
            yield part, one
    yield "check", found["Pod", "kompakt-check"]["spec"]["containers"][0]


def pods(found: Objects) -> list[dict[str, Any]]:
    return [*(template(found, part)["spec"] for part in WORKLOADS), found["Pod", "kompakt-check"]["spec"]]


CLUSTER, NODE = "system-cluster-critical", "system-node-critical"
PART_CLASSES = tuple(json_of(f"{part}.priorityClassName", name) for part, name in zip(WORKLOADS, ("a", CLUSTER, ""), strict=True))


@pytest.mark.parametrize(
    ("settings", "classes", "allowed"),
    [
        ((), [CLUSTER, CLUSTER, NODE, CLUSTER], [CLUSTER, NODE]),
        (('priorityClassName="high"',), ["high"] * 4, []),
        (PART_CLASSES, ["a", CLUSTER, None, "a"], [CLUSTER]),
    ],
)
def test_pods_have_their_class_and_a_quota_lets_critical_ones_in(
    settings: tuple[str, ...], classes: list[str | None], allowed: list[str]
) -> None:
    found = objects(*settings)
    assert [pod.get("priorityClassName") for pod in pods(found)] == classes
    quotas = of_kind(found, "ResourceQuota")
    assert list(quotas) == (["kompakt-critical-pods"] if allowed else [])
    for quota in quotas.values():
        (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
        assert scope == {"scopeName": "PriorityClass", "operator": "In", "values": allowed}
        assert quota["metadata"]["namespace"] == "kompakt-system"


def test_every_pod_has_the_pull_secrets() -> None:
    for pod in pods(objects()):
        assert "imagePullSecrets" not in pod
    for pod in pods(objects(json_of("image.pullSecrets", [{"name": "pull"}]))):
        assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_names_of_pull_secrets_are_handed_on_to_the_operator_for_workers() -> None:
    told = container(objects(json_of("runtime.pullSecrets", ["team", "more.of-it"])), "operator", "operator")["args"]
    assert "--runtime-pull-secrets=team,more.of-it" in told
    assert [one for one in container(objects(), "operator", "operator")["args"] if "pull-secrets" in one] == []
    for wrong in ([{"name": "team"}], ["Team"], ["a,b"], "team"):
        assert "pullSecrets" in refusal(json_of("runtime.pullSecrets", wrong))


def test_registry_tag_and_policy_are_those_of_every_image_of_ours() -> None:
    found = objects('image.registry="mirror.example/team"', 'image.tag="9"', 'image.pullPolicy="Always"')
    images = {one["image"] for _, one in containers(found) if "kube-scheduler" not in one["image"]}
    assert images == {f"mirror.example/team/kompakt-{part}:9" for part in ("operator", "extender", "device-plugin")}
    assert "--runtime-image=mirror.example/team/kompakt-runtime:9" in container(found, "operator", "operator")["args"]
    assert {one["imagePullPolicy"] for _, one in containers(found)} == {"Always"}


@pytest.mark.parametrize("part", ["operator", "extender", "device-plugin", "runtime"])
def test_a_digest_takes_the_place_of_the_tag_of_its_part_only(part: str) -> None:
    plain, pinned = rendered(), rendered(json_of(f"image.digests.{part}", DIGEST))
    assert pinned == plain.replace(f"localhost/kompakt-{part}:0.1.0", f"localhost/kompakt-{part}@{DIGEST}") != plain


def test_common_labels_are_on_every_object_and_every_pod() -> None:
    found = objects(json_of("commonLabels", {"owner": "platform"}))
    unlabelled = [key for key, one in found.items() if one["metadata"].get("labels", {}).get("owner") != "platform"]
    assert unlabelled == []
    for part in WORKLOADS:
        assert template(found, part)["metadata"]["labels"]["owner"] == "platform"
        assert found[WORKLOADS[part]]["spec"]["selector"] == objects()[WORKLOADS[part]]["spec"]["selector"]


@pytest.mark.parametrize("group", ["system:authenticated", "system:unauthenticated", "system:serviceaccounts"])
def test_a_group_of_everybody_may_not_open_gates(group: str) -> None:
    assert "breakGlassGroup" in refusal(json_of("admission.breakGlassGroup", group))
    assert "breakGlassGroup" in refusal(json_of("admission.breakGlassGroup", [group]))


def test_accounts_carry_their_annotations() -> None:
    found = objects(json_of("serviceAccount.annotations", {"iam": "role"}))
    accounts = {name: one["metadata"].get("annotations") for (kind, name), one in found.items() if kind == "ServiceAccount"}
    assert {name for name, notes in accounts.items() if notes == {"iam": "role"}} == {name for _, name in WORKLOADS.values()}


@pytest.mark.parametrize(
    ("cluster", "image"),
    [("v1.35.0", "v1.35.0"), ("v1.36.4-gke.12", "v1.36.4"), ("v1.37.1+k3s1", "v1.37.1"), ("v1.37.0-rc.1", "v1.37.0")],
)
def test_kube_scheduler_follows_the_clusters_version(cluster: str, image: str) -> None:
    found = container(objects(version=cluster), "scheduler", "kube-scheduler")
    assert found["image"] == f"registry.k8s.io/kube-scheduler:{image}"
    own = 'schedulerImage="mirror.example/kube-scheduler:v1.37.1"'
    assert container(objects(own, version=cluster), "scheduler", "kube-scheduler")["image"] == json.loads(own.partition("=")[2])


@pytest.mark.parametrize("cluster", ["v1.34.9", "v1.38.0"])
def test_a_cluster_that_is_too_old_or_too_new_is_refused(cluster: str) -> None:
    assert "incompatible with Kubernetes" in refusal(version=cluster)


def test_a_change_of_the_schedulers_configuration_restarts_its_pods() -> None:
    """kube-scheduler reads it at its start only."""
    notes = [
        template(objects(*more), "scheduler")["metadata"]["annotations"] for more in ((), ('scheduler.lease.duration="20s"',))
    ]
    assert notes[0]["checksum/configuration"] != notes[1]["checksum/configuration"]


# What a leaf of values.yaml is changed to, where adding to it or turning it round makes no sense; and what must be set beside.
SAMPLES: dict[str, Any] = {
    "autoscaler.provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
    "allocation": "Report",
    "resourceClaims.deviceClass": "gpu.example.com",
    "resourceClaims.driver": "gpu.example.com",
    "resourceClaims.key": "id",
    "resourceClaims.scheduler": "gpu-scheduler",
    "image.registry": "mirror",
    "image.tag": "9",
    "image.digests": {"operator": DIGEST},
    "image.pullPolicy": "Never",
    "image.pullSecrets": [{"name": "pull"}],
    "schedulerImage": "mirror/kube-scheduler:v1.37.1",
    "operator.namespace": "ml",
    "operator.logLevel": "DEBUG",
    "consolidation.policy": "no-wait",
    "consolidation.labels.rack": "row",
    "consolidation.labels.block": "hall",
    "explain.readers": [{"kind": "Group", "name": "ml"}],
    "explain.callers": [{"kind": "Group", "name": "ml"}],
    "explain.networkPolicy.apiServers": ["10.0.0.1/32"],
    "explain.networkPolicy.monitoring": [{"podSelector": {}}],
    "isolation": "Strict",
    "devicePlugin.resourceName": "nvidia.com/gpu",
    "devicePlugin.source": "nvml",
    "devicePlugin.machines": {"box": "dgx1-v100"},
    "devicePlugin.nvmlLibrary": "/opt/libnvidia-ml.so.1",
    "devicePlugin.driverFolder": "/usr/lib64",
    "devicePlugin.toolkitFolder": "/opt/toolkit",
    "devicePlugin.runtimeClassName": "nvidia",
    "devicePlugin.cdi": "never",
    "devicePlugin.skipXIDs": [94],
    "devicePlugin.heedXIDs": [13],
    "devicePlugin.ownGPUs": ["GPU-1"],
    "devicePlugin.kubeletDir": "/data/kubelet",
    "serviceAccount.annotations": {"a": "b"},
    "monitoring.readers": [{"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "monitoring"}],
    "monitoring.scrapeClass": "kompakt",
    "monitoring.kubeSchedulerScrapeClass": "api-server",
    "monitoring.runbooks": "https://docs.example.org/runbooks/",
    "monitoring.interval": "1m",
    "monitoring.labels": {"release": "prometheus"},
    "priorityClassName": "high",
    **{f"{part}.priorityClassName": "high" for part in WORKLOADS},
    "commonLabels": {"a": "b"},
    "runtime.pullSecrets": ["team"],
    "admission.systemNamespaces": ["kube-system", "ingress"],
    "admission.exemptNamespaces": ["kube-system"],
    "admission.breakGlassGroup": "on-call",
    "admission.writers": ["ann"],
}
BESIDE = {
    **{f"resourceClaims.{name}": ('allocation="ResourceClaims"',) for name in ("deviceClass", "driver", "key", "scheduler")},
    "allocation": ('devicePlugin.resourceName="nvidia.com/gpu"',),
    "admission.setSchedulerName": ('devicePlugin.resourceName="nvidia.com/gpu"',),
    "admission.enabled": ("admission.iKnowWhatThisOpens=true",),
    "devicePlugin.nvmlLibrary": ('devicePlugin.source="nvml"',),
    "devicePlugin.driverFolder": ('devicePlugin.source="nvml"',),
    "isolation": ('devicePlugin.source="nvml"', 'devicePlugin.driverFolder="/usr/lib64"'),
    "devicePlugin.toolkitFolder": ('isolation="Strict"', 'devicePlugin.source="nvml"', 'devicePlugin.driverFolder="/usr/lib64"'),
    "devicePlugin.cdi": ('devicePlugin.source="nvml"',),
    "devicePlugin.skipXIDs": ('devicePlugin.source="nvml"',),
    "devicePlugin.heedXIDs": ('devicePlugin.source="nvml"',),
    "monitoring.scrapeClass": ("monitoring.podMonitors=true",),
    "monitoring.kubeSchedulerScrapeClass": ("monitoring.podMonitors=true",),
    "monitoring.runbooks": ("monitoring.rules=true",),
    "monitoring.interval": ("monitoring.podMonitors=true",),
    "monitoring.labels": ("monitoring.podMonitors=true",),
}
TRIED_ELSEWHERE = {"admission.iKnowWhatThisOpens"}  # test_rights.py
TRIED_ABOVE = {*PLACE, *SPREAD, "podLabels", "podAnnotations", "extraEnv", "resources", "schedulerResources", "extenderResources"}


def leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{above}{name}"
        if above.rstrip(".") in WORKLOADS and name in TRIED_ABOVE:
            continue
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


LEAVES = [(path, value) for path, value in leaves(VALUES) if path not in TRIED_ELSEWHERE]


def another(path: str, value: Any) -> Any:
    if path in SAMPLES:
        return SAMPLES[path]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    assert isinstance(value, str), f"{path} needs a sample"
    assert value.endswith("s"), f"{path} needs a sample"
    return f"1{value}"


@pytest.mark.parametrize(("path", "value"), LEAVES, ids=[path for path, _ in LEAVES])
def test_no_value_is_ignored(path: str, value: Any) -> None:
    beside = BESIDE.get(path, ())
    assert rendered(*beside, json_of(path, another(path, value))) != rendered(*beside)


FREE = {"requests", "limits"}  # any resource may be named there


def mappings(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of values.yaml that has fields; paths end with a dot."""
    yield path, values
    for name, value in values.items():
        if isinstance(value, Mapping) and value and name not in FREE:
            yield from mappings(value, f"{path}{name}.")


MAPPINGS = dict(mappings(VALUES))


def known(path: str) -> set[str]:
    """The fields that the schema has there."""
    schema = SCHEMA
    for name in path.split(".")[:-1]:
        schema = schema["properties"][name]
        if "$ref" in schema:
            schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    return set(schema["properties"])


def test_values_and_schema_know_the_same_names() -> None:
    assert len(MAPPINGS) > 15
    for path, given in MAPPINGS.items():
        assert known(path) - {"global"} == set(given), path  # Helm itself puts `global` there


def test_an_unknown_name_is_refused_at_every_level() -> None:
    paths = [*MAPPINGS, "image.digests."]
    told = refusal(*(f"{path}oddity{number}=1" for number, path in enumerate(paths)))
    assert [path for number, path in enumerate(paths) if f"'oddity{number}'" not in told] == [], told
