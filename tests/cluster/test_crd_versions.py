"""How a version of a CRD is added, made the stored one and removed, as docs/operations.md says: tried with a throw-away field."""

import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from kompakt_core import contract as c
from tests.support.cluster.conversion import converting
from tests.support.cluster.crd_versions import FIELD, NAME, NEXT, definition, stored_as, without
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.replacing import OPERATOR, end_operator
from tests.support.crds import crd
from tests.support.turns import in_turn
from tools.kube.jobs import JobManifest, training_job
from tools.kube.parts import can_set_hostname
from tools.kube.session import ClusterSession, KubectlFailed, eventually

pytestmark = in_turn(0)

MARKS = itertools.count()
BOTH = f"{c.VERSION} {NEXT}"


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """All our parts at work in a cluster of their own."""
    with own_cluster(tmp_path_factory.mktemp("versions"), MACHINES) as cluster:
        cluster.parts.install()
        identity = "scheduler-0" if can_set_hostname() else socket.gethostname()
        cluster.start(cluster.parts.simulated_plugins(), *cluster.parts.pair(identity)[1:], cluster.parts.operator())
        yield cluster


@pytest.fixture
def ours(working: ClusterSession) -> Iterator[ClusterSession]:
    """That cluster; afterwards there is no job, and the CRD is ours again."""
    yield working
    define(working, definition(stored=NEXT))
    working.kubectl("delete", c.JOB_PLURAL, "-A", "--all", "--timeout=120s")
    define(working, definition(stored=c.VERSION))
    told = json.dumps({"status": {"storedVersions": [c.VERSION]}})
    working.kubectl("patch", "crd", NAME, "--subresource=status", "--type=merge", "-p", told)
    define(working, crd(c.JOB_PLURAL))
    if OPERATOR not in working.plane.processes:
        working.restart(OPERATOR)


def define(cluster: ClusterSession, body: Any) -> None:
    """Replace the CRD, and wait until the API server serves what it says: of each version it then knows one more field."""
    mark = f"mark{next(MARKS)}"
    for version in body["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][mark] = {"type": "string"}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(body))
    names = {version["name"] for version in body["spec"]["versions"]}
    known = {c.VERSION: c.VERSION in names, NEXT: NEXT in names}
    eventually(lambda: {name: takes(cluster, name, mark) for name in known} == known, f"{names} served anew")


def takes(cluster: ClusterSession, version: str, field: str) -> bool:
    """Whether a job in that version may have the field."""
    try:
        create(cluster, version, training_job("probe", **{field: ""}), dry_run="All", field_validation="Strict")
    except client.ApiException:
        return False
    return True


def create(cluster: ClusterSession, version: str, document: Any, **options: str) -> JobManifest:
    body = {**document, "apiVersion": f"{c.GROUP}/{version}"}
    cluster.custom.create_namespaced_custom_object(c.GROUP, version, "default", c.JOB_PLURAL, body, **options)
    return JobManifest(cluster, "default", document["metadata"]["name"])


def read(cluster: ClusterSession, version: str, name: str) -> Any:
    return cluster.custom.get_namespaced_custom_object(c.GROUP, version, "default", c.JOB_PLURAL, name)


def stored_versions(cluster: ClusterSession) -> str:
    return cluster.kubectl("get", "crd", NAME, "-o", "jsonpath={.status.storedVersions[*]}")


def test_a_version_comes_and_is_stored_while_a_job_runs_and_the_former_goes_after_it(ours: ClusterSession) -> None:
    long = create(ours, c.VERSION, training_job("long", seconds=None))
    long.await_phase("Running")
    define(ours, definition(stored=c.VERSION))
    create(ours, NEXT, training_job("new")).await_phase("Succeeded")  # by parts that know the former version only
    create(ours, NEXT, training_job("foreign", managedBy="example.com/somebody-else", **{FIELD: "kept"}))
    assert [read(ours, version, "foreign")["spec"][FIELD] for version in (c.VERSION, NEXT)] == ["kept"] * 2
    define(ours, definition(stored=NEXT))
    eventually(lambda: stored_versions(ours) == BOTH, "both are stored")
    assert c.VERSION in stored_as(ours).values()
    for refused in (without(c.VERSION, definition(stored=NEXT)), without(NEXT, definition(stored=c.VERSION))):
        with pytest.raises(KubectlFailed, match="storedVersions"):
            define(ours, refused)
    eventually(lambda: written_anew(ours), "all written anew, although our parts write meanwhile")
    assert stored_as(ours) == dict.fromkeys(("foreign", "long", "new"), NEXT)
    told = json.dumps({"status": {"storedVersions": [NEXT]}})
    ours.kubectl("patch", "crd", NAME, "--subresource=status", "--type=merge", "-p", told)
    long.finish()
    long.await_phase("Succeeded")
    assert (long.status["attempt"], long.status["restarts"]) == (1, 0)
    end_operator(ours)  # a part that asks for the former version takes the CRD for deleted
    define(ours, without(c.VERSION, definition(stored=NEXT)))
    assert read(ours, NEXT, "foreign")["spec"][FIELD] == "kept"
    assert read(ours, NEXT, "long")["status"]["phase"] == "Succeeded"


def written_anew(cluster: ClusterSession) -> bool:
    """Replace each object by itself, so that it is stored in the version that is stored now; False where one was changed."""
    try:
        cluster.kubectl("replace", "-f", "-", stdin=cluster.kubectl("get", c.JOB_PLURAL, "-A", "-o", "json"))
    except KubectlFailed as error:
        if "the object has been modified" in str(error):
            return False
        raise
    return True


def test_parts_that_do_not_know_a_field_refuse_the_job_that_has_it(ours: ClusterSession) -> None:
    define(ours, definition(stored=c.VERSION))
    early = create(ours, NEXT, training_job("early", **{FIELD: "x"}))
    early.await_phase("Failed")
    assert f"spec.{FIELD}: unknown field" in str(early.status)


def test_without_conversion_what_one_version_lacks_is_lost(ours: ClusterSession) -> None:
    """So all versions have the same schema, or a webhook converts."""
    define(ours, definition(stored=c.VERSION, fields={NEXT: FIELD}))
    create(ours, NEXT, training_job("lossy", managedBy="example.com/somebody-else", **{FIELD: "x"}))
    assert FIELD not in read(ours, NEXT, "lossy")["spec"]
    define(ours, definition(stored=NEXT, fields={NEXT: FIELD}))
    kept = create(ours, NEXT, training_job("kept", managedBy="example.com/somebody-else", **{FIELD: "x"}))
    assert read(ours, NEXT, "kept")["spec"][FIELD] == "x"
    assert FIELD not in kept.read()["spec"]
    ours.kubectl("replace", "-f", "-", stdin=json.dumps(kept.read()))
    assert FIELD not in read(ours, NEXT, "kept")["spec"], "a client of the former version took it away"


def test_a_webhook_renames_a_field_and_while_it_is_away_jobs_of_the_other_version_cannot_be_read(ours: ClusterSession) -> None:
    names, foreign = {c.VERSION: "formerly", NEXT: FIELD}, {"managedBy": "example.com/somebody-else"}
    with converting(ours, names) as conversion:
        define(ours, definition(stored=c.VERSION, fields=names, conversion=conversion))
        create(ours, NEXT, training_job("renamed", **foreign, **{FIELD: "x"}))
        found = [read(ours, version, "renamed")["spec"] for version in names]
        assert [[name for name in names.values() if name in spec] for spec in found] == [["formerly"], [FIELD]]
    assert read(ours, c.VERSION, "renamed")["spec"]["formerly"] == "x"
    with pytest.raises(client.ApiException, match="conversion webhook"):
        read(ours, NEXT, "renamed")


def test_limits_hold_for_a_version_that_their_policy_does_not_name(ours: ClusterSession) -> None:
    define(ours, definition(stored=c.VERSION))
    limits = {"apiVersion": c.API_VERSION, "kind": c.LIMITS_KIND, "metadata": {"name": "narrow"}, "spec": {"maxWorkers": 1}}
    ours.kubectl("apply", "-f", "-", stdin=json.dumps(limits))
    body = {**training_job("wide", replicas=2), "apiVersion": f"{c.GROUP}/{NEXT}"}
    eventually(lambda: "Limits narrow" in refusal(ours, body), "the job is refused in the new version too")


def refusal(cluster: ClusterSession, body: Any) -> str:
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    except KubectlFailed as error:
        return str(error)
    return ""
