"""TrainingJobs whose GPUs a driver hands out by ResourceClaims: kompakt writes the claims, the cluster's own scheduler allocates
them. Simulated nodes: what is allocated is real, nothing is prepared.
"""

from collections.abc import Iterator

import pytest

from kompakt_core import contract as c
from tests.support.cluster import resource_slices, waits
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.reading import written
from tests.support.cluster.resource_slices import allocated, claims
from tools.kube.jobs import apply, training_job
from tools.kube.session import ClusterSession, eventually

VALUES = {"allocation": "ResourceClaims", **waits.FACTOR_SETTINGS}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """One without a scheduler of ours."""
    with own_cluster(tmp_path_factory.mktemp("claims"), MACHINES) as cluster:
        cluster.parts.install(VALUES)
        cluster.start(cluster.parts.simulated_plugins())
        resource_slices.publish(cluster)
        cluster.start(cluster.parts.planner())
        cluster.start(cluster.parts.operator("operator-0", "--claims-scheduler=default-scheduler"))
        yield cluster


def test_a_gang_gets_exactly_the_gpus_of_its_plan(cluster: ClusterSession, namespace: str) -> None:
    job = apply(cluster, namespace, training_job("ring", replicas=2, gpus=4, seconds=None))
    job.await_phase("Running")
    eventually(lambda: all(written(pod) for pod in job.pods()), "their GPUs are written on all pods")
    for pod in job.pods():
        claim = claims(cluster, namespace)[pod.metadata.name]
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod.metadata.uid
        assert allocated(cluster, claim) == set(written(pod, c.ANN_PLANNED_GPUS)) == set(written(pod))
        assert pod.spec.scheduler_name == "default-scheduler"
        assert int(pod.metadata.annotations[c.ANN_VALUE]) > 0
    job.delete()
    eventually(lambda: not claims(cluster, namespace), "claims go with their pods")
