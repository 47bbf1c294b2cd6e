"""Who hands out GPUs: what the chart installs where it is not kompakt's device plugin."""

from tests.support.chart import KUEUE, objects, of_kind, refusal, templated

MUTATING = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
NAMED = 'devicePlugin.resourceName="nvidia.com/gpu"'
REPORT = ('allocation="Report"', NAMED)


def test_where_kompakt_only_reports_nothing_is_installed_that_offers_places_or_changes() -> None:
    found = objects(*REPORT)
    workloads = of_kind(found, "Deployment", "DaemonSet", "Job")
    assert workloads.keys() == {"kompakt-scheduler", "kompakt-device-plugin"}
    (explainer,) = workloads["kompakt-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert (explainer["name"], "--explain-only=true" in explainer["args"]) == ("extender", True)
    plugin = workloads["kompakt-device-plugin"]["spec"]["template"]["spec"]
    assert "--allocation=report" in plugin["containers"][0]["args"]
    writable = [mount["mountPath"] for mount in plugin["containers"][0]["volumeMounts"] if not mount.get("readOnly")]
    assert (writable, "hostPID" in plugin) == (["/tmp"], False)
    assert of_kind(found, *MUTATING) == {}
    guarded = {name.removeprefix("kompakt-admission-") for name in of_kind(found, "ValidatingAdmissionPolicy")}
    assert guarded == {"objects", "scheduler", "device-plugin"}, "no policy speaks of anybody's pods"


def test_where_kompakt_only_reports_its_accounts_write_reports_alone() -> None:
    rules = [
        rule
        for (kind, name), one in objects(*REPORT).items()
        if kind in ("ClusterRole", "Role")
        for rule in one["rules"]
        if name in ("kompakt-scheduler", "kompakt-device-plugin")
    ]
    writes = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    writes -= {(resource, verb) for resource, verb in writes if verb in ("get", "list", "watch")}
    reports = {("gputopologies", "create"), ("gputopologies", "patch"), ("gputopologies/status", "patch")}
    assert writes == reports | {("events", "create"), ("events", "patch")}


def test_who_only_reports_has_to_be_told_what_others_hand_out() -> None:
    assert "needs devicePlugin.resourceName=nvidia.com/gpu" in refusal('allocation="Report"')


BY_CLAIMS = 'allocation="ResourceClaims"'


def test_where_gpus_come_by_claims_no_scheduler_is_installed_and_the_planner_holds_the_lease() -> None:
    found = objects(BY_CLAIMS, 'resourceClaims.scheduler="gpu-scheduler"')
    (planner,) = of_kind(found, "Deployment")["kompakt-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert {"--device-class=gpu.nvidia.com", "--dra-driver=gpu.nvidia.com", "--device-key=uuid"} <= set(planner["args"])
    assert not [arg for arg in planner["args"] if arg.startswith("--explain-only")]
    operator = of_kind(found, "Deployment")["kompakt-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert "--claims-scheduler=gpu-scheduler" in operator["args"]
    plugin = of_kind(found, "DaemonSet")["kompakt-device-plugin"]["spec"]["template"]["spec"]["containers"][0]
    assert "--allocation=report" in plugin["args"]
    assert not [name for name in of_kind(found, "ClusterRoleBinding") if name.endswith("kube-scheduler")]


def test_where_gpus_come_by_claims_pods_of_others_stay_as_they_are() -> None:
    found = objects(BY_CLAIMS)
    assert of_kind(found, *MUTATING) == {}
    guarded = {name.removeprefix("kompakt-admission-") for name in of_kind(found, "ValidatingAdmissionPolicy")}
    assert "gpus" not in guarded, "no pod need name our scheduler"
    assert {"pods", "bindings", "objects", "operator", "scheduler", "device-plugin"} <= guarded


def test_claims_and_queues_are_not_together_yet() -> None:
    assert "set kueue.enabled=false" in refusal(BY_CLAIMS, "kueue.enabled=true")


def test_claims_need_a_cluster_that_serves_them() -> None:
    done = templated(BY_CLAIMS, apis=KUEUE)
    assert done.returncode
    assert "needs the API resource.k8s.io/v1" in done.stderr
    assert templated(apis=KUEUE).returncode == 0
