"""What becomes of jobs and their pods when the definitions go: on a control plane of its own, since nothing of it is left."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from kompakt_core.contract import GROUP, JOB_PLURAL
from tests.support.cluster.own_cluster import own_cluster
from tests.support.turns import in_turn
from tools.kube import simulated
from tools.kube.components import control_plane
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import NAMESPACE, ROOT, render
from tools.kube.session import ClusterSession, eventually, stays

pytestmark = in_turn(0)

DEFINITION = f"{JOB_PLURAL}.{GROUP}"
CRDS = str(ROOT / "crds")
HOOK = "kompakt-removal"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """A cluster with all our parts at work."""
    with own_cluster(tmp_path_factory.mktemp("uninstall"), simulated.machines(2)) as cluster:
        cluster.parts.install()
        cluster.start(cluster.parts.simulated_plugins())
        cluster.start_pair("scheduler-0")
        cluster.start(cluster.parts.operator())
        yield cluster


@pytest.fixture
def defined(own: ClusterSession) -> Iterator[ClusterSession]:
    """The cluster; afterwards it has its definitions again, no job and no worker."""
    yield own
    own.kubectl("apply", "--server-side", "-f", CRDS)
    own.parts.await_definitions()
    own.kubectl("delete", "trainingjobs", "--all", "--namespace=default", "--timeout=60s")
    own.kubectl("delete", "pods,services", "--selector=kompakt.dev/job-uid", "--namespace=default", "--timeout=60s")


def running(cluster: ClusterSession, name: str, **more: Any) -> JobManifest:
    job = apply(cluster, "default", training_job(name, replicas=2, gpus=2, seconds=None, **more))
    job.await_phase("Running")
    return job


def left_of(job: JobManifest) -> list[str]:
    """Pods, Services and budgets of a job."""
    selector = {"label_selector": f"kompakt.dev/job-name={job.name}"}
    budgets = client.PolicyV1Api(job.cluster.api).list_namespaced_pod_disruption_budget(job.namespace, **selector).items
    services = job.cluster.core.list_namespaced_service(job.namespace, **selector).items
    return [item.metadata.name for item in (*job.pods(), *services, *budgets)]


@contextmanager
def without_controllers(cluster: ClusterSession) -> Iterator[None]:
    """Kubernetes' own controllers, the garbage collector among them, stand still."""
    plane, name = cluster.plane, "kube-controller-manager"
    plane.stop_component(name, grace=0)
    try:
        yield
    finally:
        parts = {part.name: part for part in control_plane(cluster.find, plane.addresses, plane.keys, plane.folder)}
        plane.start_component(parts[name])


def undefined(cluster: ClusterSession) -> None:
    """Deletes the CRD of TrainingJob, and all jobs with it."""
    cluster.kubectl("delete", "customresourcedefinition", DEFINITION, "--timeout=60s")


def test_the_operator_ends_pods_of_jobs_that_went_with_their_definition_where_the_collector_does_not(
    defined: ClusterSession,
) -> None:
    """The collector works in most cases; here it is away."""
    jobs = [running(defined, "first", runPolicy={"evictions": "Refuse"}), running(defined, "second")]
    assert len(left_of(jobs[0])) == 4
    with without_controllers(defined):
        undefined(defined)
        # The operator begins anew first: it notices, ends, may wait for its own Lease, lists, and gives the collector its time.
        eventually(lambda: not any(map(left_of, jobs)), "nothing left of both jobs")


def test_a_job_runs_after_the_definition_came_back_while_the_operator_ran_on(defined: ClusterSession) -> None:
    undefined(defined)
    defined.kubectl("apply", "--server-side", "-f", CRDS)
    defined.parts.await_definitions()
    apply(defined, "default", training_job("again", replicas=2, gpus=2)).await_phase("Succeeded")


def test_what_was_orphaned_on_purpose_stays(defined: ClusterSession) -> None:
    job = running(defined, "orphaning")
    before = left_of(job)
    defined.kubectl("delete", "trainingjob", job.name, "--cascade=orphan", "--timeout=60s")
    defined.kubectl("annotate", "pods", "--selector=kompakt.dev/job-name=orphaning", "looked-at=again")
    stays(lambda: left_of(job), rounds=12, seconds=1.0)
    assert left_of(job) == before


@pytest.fixture
def hook(defined: ClusterSession, tmp_path: Path) -> list[str]:
    """The command of the chart's hook before an uninstall, with its account and nobody's rights but its own."""
    chart = render(defined.find, {"crds.keep": "false"})
    hooks = [one for one in chart if (one["metadata"].get("annotations") or {}).get("helm.sh/hook") == "pre-delete"]
    (job,) = [one for one in hooks if one["kind"] == "Job"]
    rights = [one for one in hooks if one["kind"] != "Job"]
    defined.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    token = defined.kubectl("create", "token", HOOK, f"--namespace={NAMESPACE}")
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_bytes(defined.plane.keys.authority.certificate_file.read_bytes())
    python, flag, script, _, _, seconds = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert python.endswith("/python")
    return [sys.executable, flag, script, defined.plane.addresses.server, str(tmp_path), seconds]


def test_the_hook_before_an_uninstall_ends_all_jobs_and_nothing_stays(defined: ClusterSession, hook: list[str]) -> None:
    jobs = [running(defined, "one"), running(defined, "two")]
    parked = apply(defined, "default", training_job("parked", suspend=True))
    parked.await_phase("Suspended")
    done = subprocess.run(hook, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" deleted") == 3
    assert json.loads(defined.kubectl("get", "trainingjobs", "--all-namespaces", "--output=json"))["items"] == []
    undefined(defined)
    eventually(lambda: not any(map(left_of, jobs)), "nothing left", 60)
    again = subprocess.run(hook, capture_output=True, text=True, check=False, timeout=90)
    assert again.returncode == 0, again.stderr


def test_the_hook_says_which_pods_stay_and_gives_up(defined: ClusterSession, hook: list[str]) -> None:
    running(defined, "staying")
    defined.kill("operator-0")
    try:
        with without_controllers(defined):
            done = subprocess.run([*hook[:-1], "2"], capture_output=True, text=True, check=False, timeout=60)
    finally:
        defined.restart("operator-0")
    assert done.returncode == 1
    assert "after 2 s: pods default/staying-worker-" in done.stderr
