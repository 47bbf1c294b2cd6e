"""The chart's life in a cluster of its own: install, upgrade, rollback with jobs at work, uninstall that leaves nothing stuck."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.replacing import end_operator
from tests.support.cluster.waits import LEASE
from tests.support.rights import RIGHTS
from tests.support.turns import in_turn
from tools.kube import simulated
from tools.kube.admission import await_policies
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.kwok import SECONDS_ANNOTATION
from tools.kube.parts import NAMESPACE, RELEASE, ROOT, STAND_INS, can_set_hostname, render
from tools.kube.session import ClusterSession, KubectlFailed, eventually

pytestmark = in_turn(0)

CHART = ROOT / "charts" / "kompakt"
NEW_FIELD = "lastRestart"
POLICIES = len(RIGHTS) + 6  # one for each account; those of pods, bindings, GPUs, our own objects, Limits for jobs and for pods


def helm(cluster: ClusterSession, *arguments: str, namespace: str = NAMESPACE) -> str:
    where = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}")
    done = subprocess.run([str(cluster.find("helm")), *arguments, *where], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def end_removal(cluster: ClusterSession) -> None:
    """Play the end of the chart's hook before an uninstall, which simulated nodes do not run (test_uninstall.py runs it)."""
    hook = eventually(
        lambda: cluster.core.list_namespaced_pod(NAMESPACE, label_selector="batch.kubernetes.io/job-name=kompakt-removal").items,
        "the hook's pod",
        60,
    )[0]
    cluster.kubectl("annotate", "pod", hook.metadata.name, f"--namespace={NAMESPACE}", f"{SECONDS_ANNOTATION}=0")


def settings(**more: str) -> list[str]:
    return [f"--set={name}={value}" for name, value in {**STAND_INS, **LEASE, **more}.items()]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as an older release would be: another version, a definition without a field of today's."""
    chart = tmp_path_factory.mktemp("older") / "kompakt"
    shutil.copytree(CHART, chart)
    (chart / "Chart.yaml").write_text((CHART / "Chart.yaml").read_text().replace("version: 0.1.0", "version: 0.0.9"))
    file = chart / "files" / "crds" / "trainingjobs.yaml"
    definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    del status_fields(definition)[NEW_FIELD]
    file.write_text(json.dumps(definition))  # JSON is YAML
    return chart


def status_fields(definition: dict[str, Any]) -> dict[str, Any]:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields: dict[str, Any] = schema["properties"]["status"]["properties"]
    return fields


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, older: Path) -> Iterator[ClusterSession]:
    """A cluster into which Helm installed the older chart, and our parts at work with the accounts that it made."""
    with own_cluster(tmp_path_factory.mktemp("release"), simulated.machines(2)) as cluster:
        helm(cluster, "install", RELEASE, str(older), "--create-namespace", "--wait", "--timeout=60s", *settings())
        cluster.parts.await_definitions()
        cluster.parts.chart = render(cluster.find, LEASE)
        await_policies(cluster.parts.api, cluster.parts.chart, NAMESPACE)
        cluster.start(cluster.parts.simulated_plugins())
        cluster.start_pair("scheduler-0")
        cluster.start(cluster.parts.operator())
        yield cluster


def definition(cluster: ClusterSession) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "crd", "trainingjobs.kompakt.dev", "-o", "json"))
    return found


def pods_of(job: JobManifest) -> list[tuple[str, str]]:
    return [(pod.metadata.uid, pod.status.phase) for pod in job.pods()]


@pytest.mark.skipif(not can_set_hostname(), reason="a second cluster's scheduler needs a hostname of its own (user namespaces)")
class TestRelease:
    """In this order; each leaves the cluster to the next."""

    def test_jobs_run_on_through_upgrade_and_rollback(self, released: ClusterSession) -> None:
        assert NEW_FIELD not in status_fields(definition(released))
        job = apply(released, "default", training_job("long", replicas=2, gpus=4, seconds=None))
        job.await_phase("Running")
        before = pods_of(job)
        steps = (
            ("upgrade", RELEASE, str(CHART), *settings()),
            ("rollback", RELEASE, "1"),
        )
        for number, step in enumerate(steps):
            passing = apply(released, "default", training_job(f"passing-{number}", gpus=1, seconds="1"))
            helm(released, *step, "--wait", "--timeout=60s")
            assert (NEW_FIELD in status_fields(definition(released))) == (step[0] == "upgrade")
            passing.await_phase("Succeeded")
            assert (pods_of(job), job.status["attempt"], job.phase) == (before, 1, "Running")

    def test_a_chart_that_holds_a_job_is_installed_when_its_workers_run(self, released: ClusterSession, tmp_path: Path) -> None:
        (tmp_path / "templates").mkdir()
        (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: jobs, version: 0.0.1}")
        jobs = [training_job("charted", gpus=2, seconds=None), training_job("parked", suspend=True)]
        (tmp_path / "templates" / "jobs.yaml").write_text("\n---\n".join(map(json.dumps, jobs)))
        helm(released, "install", "jobs", str(tmp_path), "--wait", "--timeout=60s", namespace="default")
        assert JobManifest(released, "default", "charted").phase == "Running"
        assert JobManifest(released, "default", "parked").phase == "Suspended"
        released.kubectl("wait", "--for=condition=Running", "tj/charted", "-n", "default", "--timeout=5s")
        charted = JobManifest(released, "default", "charted")
        helm(released, "uninstall", "jobs", "--wait", namespace="default")
        # The garbage collector looks for new definitions every 30 s; before that, it never hears of a job's end.
        eventually(lambda: not charted.pods(), "the job's pods are gone with it")

    def test_an_operator_of_one_namespace_runs_its_jobs_with_roles_only(self, released: ClusterSession) -> None:
        helm(released, "upgrade", RELEASE, str(CHART), *settings(**{"operator.namespace": "default"}))
        end_operator(released)
        bindings = json.loads(released.kubectl("get", "clusterrolebindings", "-o", "json"))["items"]
        subjects = {one["metadata"]["name"]: [who["name"] for who in one.get("subjects") or ()] for one in bindings}
        anywhere = [name for name, names in subjects.items() if f"{RELEASE}-operator" in names]
        assert anywhere == [f"{RELEASE}-reviews"], "to ask who scrapes it is all that it may do in the whole cluster"
        usual = released.parts.operator("operator-1")
        released.start(replace(usual, argv=(*usual.argv, "--namespace=default")))
        job = apply(released, "default", training_job("local", gpus=1, seconds="1"))
        job.await_phase("Succeeded")
        assert JobManifest(released, "default", "long").status["attempt"] == 1

    def test_uninstall_leaves_definitions_jobs_and_pods_and_a_new_install_goes_on(self, released: ClusterSession) -> None:
        job = JobManifest(released, "default", "long")
        before = pods_of(job)
        helm(released, "uninstall", RELEASE, "--wait", "--timeout=60s")
        assert (pods_of(job), job.phase) == (before, "Running")
        kept = released.kubectl("get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name").split()
        assert len(kept) == 2 * POLICIES, "what guards those pods stays as long as they"
        helm(released, "install", RELEASE, str(CHART), "--wait", "--timeout=60s", *settings(**{"crds.keep": "false"}))
        assert pods_of(job) == before

    def test_nothing_stays_once_jobs_and_then_the_release_with_the_definitions_are_removed(
        self, released: ClusterSession
    ) -> None:
        released.kubectl("delete", "trainingjobs", "--all", "--all-namespaces")
        eventually(lambda: not released.core.list_namespaced_pod("default").items, "no pods of jobs")
        with ThreadPoolExecutor(1) as aside:
            uninstalled = aside.submit(helm, released, "uninstall", RELEASE, "--wait", "--timeout=60s")
            end_removal(released)
            uninstalled.result()
        with pytest.raises(KubectlFailed, match="not found"):
            definition(released)
        kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,crds"
        left = released.kubectl("get", kinds, "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name")
        assert left == ""
        released.kubectl("delete", "namespace", NAMESPACE, "--wait", "--timeout=60s")


VALUES: dict[str, list[str]] = {
    "as it is": [],
    "one namespace": ["operator.namespace=default"],
    "GPUs of a driver": ["devicePlugin.source=nvml", "devicePlugin.ownGPUs={GPU-1}", "devicePlugin.runtimeClassName=nvidia"],
    "one replica, nothing closed": [
        "operator.replicas=1", "scheduler.replicas=1", "explain.networkPolicy.enabled=false", "admission.enabled=false",
        "admission.iKnowWhatThisOpens=true",
    ],
    "pinned images and placement": [
        "image.digests.operator=sha256:" + "0" * 64,
        "image.pullSecrets[0].name=pull", "priorityClassName=system-cluster-critical",
        "operator.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key="
        "metadata.name",
        "operator.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator="
        "In",
        "operator.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values="
        "{n}",
        "scheduler.tolerations[0].key=infra", "scheduler.tolerations[0].operator=Exists", "operator.extraEnv[0].name=TZ",
        "operator.extraEnv[0].value=UTC", "operator.podLabels.team=ml", "devicePlugin.podAnnotations.a=b", "commonLabels.b=c",
    ],
    "watched and read": [
        "explain.readers[0].kind=Group", "explain.readers[0].name=ml",
        "explain.networkPolicy.monitoring[0].namespaceSelector.matchLabels.name=monitoring",
        "explain.networkPolicy.apiServers={10.0.0.1/32}", "admission.exemptNamespaces={kube-system}",
    ],
}  # fmt: skip


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_takes_what_the_chart_makes_of_these_values(cluster: ClusterSession, values: list[str]) -> None:
    command = [str(cluster.find("helm")), "template", "dry", str(CHART), "-n", NAMESPACE, "--kube-version=1.37.1", "--no-hooks"]
    told = [f"--set={value}" for value in ("image.registry=mirror.example", *values)]
    done = subprocess.run([*command, *told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    taken = cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=done.stdout)
    assert "deployment.apps/dry-operator serverside-applied (server dry run)" in taken
