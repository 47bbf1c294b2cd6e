"""One cluster of simulated nodes for all cluster tests of a run.

Real: etcd, kube-apiserver with RBAC, controller manager, both kube-schedulers, our operator and extender with the
chart's rights. Simulated: kubelets (kwok) and device plugins. All of it lies in pytest's temporary folder, listens on
free ports of 127.0.0.1, and is killed by the kernel should pytest itself be killed.
"""

import socket
import uuid
from collections.abc import Iterator

import pytest

from kompakt_core import contract as c
from tests.support.cluster import waits
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.replacing import second_pair
from tools.kube.holding import HoldingWatch
from tools.kube.parts import Pair, can_set_hostname
from tools.kube.session import ClusterSession, eventually


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """Control plane, three simulated nodes, our definitions and rights; none of our processes."""
    with own_cluster(tmp_path_factory.mktemp("cluster"), MACHINES) as cluster:
        cluster.parts.install(waits.LEASE | waits.FACTOR_SETTINGS)
        yield cluster


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """A cluster with our definitions, rights and policies, and nobody at work: what a test writes stays as it is."""
    with own_cluster(tmp_path_factory.mktemp("guarded"), MACHINES) as cluster:
        cluster.parts.install()
        yield cluster


@pytest.fixture(scope="session")
def plugins(cluster: ClusterSession) -> ClusterSession:
    """The cluster with its simulated device plugins."""
    cluster.start(cluster.parts.simulated_plugins())
    return cluster


@pytest.fixture(scope="session")
def pair(plugins: ClusterSession) -> Pair:
    """The scheduler pair that decides; where hostnames cannot be given, it goes by the machine's."""
    return plugins.start_pair("scheduler-0" if can_set_hostname() else socket.gethostname())


@pytest.fixture
def standby(kompakt: ClusterSession, pair: Pair) -> Iterator[Pair]:
    """A second pair; after the test the first one is at work again and alone."""
    with second_pair(kompakt) as second:
        yield second


@pytest.fixture(scope="session")
def kompakt(plugins: ClusterSession, pair: Pair) -> ClusterSession:
    """The cluster with all our parts at work."""
    plugins.start(plugins.parts.operator())
    return plugins


@pytest.fixture
def watched(kompakt: ClusterSession) -> Iterator[HoldingWatch]:
    """Watches the one invariant: no GPU is held twice."""
    watch = HoldingWatch(str(kompakt.kubeconfig))
    yield watch
    watch.close()
    assert watch.violations == []
    assert watch.events > 0


@pytest.fixture
def namespace(cluster: ClusterSession) -> Iterator[str]:
    """A namespace that accepts pods; afterwards it is deleted, and waited for until no GPU is taken by a pod of it."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.core.create_namespace({"metadata": {"name": name}})

    def ready() -> bool:
        return any(account.metadata.name == "default" for account in cluster.core.list_namespaced_service_account(name).items)

    eventually(ready, f"ServiceAccount default in {name}")
    yield name
    # Jobs and pods one by one: the namespace controller takes five seconds for what must be gone before the next test.
    cluster.custom.delete_collection_namespaced_custom_object("kompakt.dev", "v1alpha1", name, "trainingjobs")
    cluster.core.delete_collection_namespaced_pod(name)
    eventually(lambda: not cluster.core.list_namespaced_pod(name).items, f"all pods of {name} gone")
    eventually(lambda: not held_from(cluster, name), f"no GPU held by a pod of {name}")
    cluster.core.delete_namespace(name)


def held_from(cluster: ClusterSession, namespace: str) -> list[str]:
    """The GPUs that device plugins report as held by pods of a namespace, as they do a little longer than the pods are there."""
    found = cluster.custom.list_cluster_custom_object(c.GROUP, c.VERSION, c.TOPOLOGY_PLURAL)["items"]
    held = [one for topology in found for one in topology.get("status", {}).get("held") or ()]
    return [one["uuid"] for one in held if one["namespace"] == namespace]
