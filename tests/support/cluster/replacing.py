"""Other programs in place of those that all cluster tests share. Leases of killed ones go: nobody waits for their end."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kompakt_core.contract import OPERATOR_LEASE
from tools.kube.components import Component
from tools.kube.parts import NAMESPACE, Pair, can_set_hostname
from tools.kube.session import ClusterSession

OPERATOR = "operator-0"
SCHEDULER_LEASE = "kompakt-scheduler"


def lease_holder(cluster: ClusterSession, lease: str = OPERATOR_LEASE) -> str:
    return cluster.kubectl("get", "lease", lease, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}")


def forget(cluster: ClusterSession, lease: str) -> None:
    cluster.kubectl("delete", "lease", lease, f"--namespace={NAMESPACE}", "--ignore-not-found")


def end_operator(cluster: ClusterSession, name: str = OPERATOR) -> None:
    cluster.kill(name)
    forget(cluster, OPERATOR_LEASE)


@contextmanager
def operator_instead(cluster: ClusterSession, other: Component) -> Iterator[None]:
    """This operator in place of the usual one, which is back afterwards."""
    usual = cluster.components[OPERATOR]
    end_operator(cluster)
    cluster.start(other)
    try:
        yield
    finally:
        end_operator(cluster, other.name)
        cluster.start(usual)


def end_pair(cluster: ClusterSession, pair: Pair) -> None:
    cluster.kill_pair(pair)
    forget(cluster, SCHEDULER_LEASE)


@contextmanager
def killed_pair(cluster: ClusterSession, pair: Pair) -> Iterator[None]:
    """The pair is gone at once, its Lease stays; it is back afterwards."""
    cluster.kill_pair(pair)
    try:
        yield
    finally:
        cluster.restart(pair.extender)
        cluster.restart(pair.scheduler)


@contextmanager
def second_pair(cluster: ClusterSession) -> Iterator[Pair]:
    """A second pair; it is gone afterwards, and its Lease with it. Skips the test where hostnames cannot be given."""
    if not can_set_hostname():
        pytest.skip("two pairs on one host need hostnames of their own, and this machine allows no user namespaces")
    second = cluster.start_pair("scheduler-1")
    try:
        yield second
    finally:
        end_pair(cluster, second)
