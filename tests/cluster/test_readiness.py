"""Every replica becomes ready, the active and the standby: else `helm --wait` would never end, nor an update of a Deployment."""

import urllib.error
import urllib.request

import pytest

from tests.support.cluster.replacing import SCHEDULER_LEASE, lease_holder
from tools.kube.components import Component, answers
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually

pytestmark = pytest.mark.usefixtures("kompakt")


def flag(component: Component, name: str) -> str:
    return next(word.rpartition("=")[2] for word in component.argv if word.startswith(f"--{name}="))


def ready_operator(component: Component) -> bool:
    return answers(f"http://127.0.0.1:{flag(component, 'health-port')}/readyz")


def ready_pair(cluster: ClusterSession, pair: Pair) -> bool:
    secure = flag(cluster.components[pair.scheduler], "secure-port")
    return answers(f"http://127.0.0.1:{pair.health_port}/readyz") and answers(f"https://127.0.0.1:{secure}/readyz")


def test_both_operators_are_ready_and_one_holds_the_lease(kompakt: ClusterSession) -> None:
    standby = kompakt.parts.operator("ready-1")
    kompakt.start(standby)
    try:
        eventually(lambda: ready_operator(standby), "the standby is ready")
        eventually(lambda: ready_operator(kompakt.components["operator-0"]), "the active one is ready")
        assert lease_holder(kompakt) == "operator-0"
    finally:
        kompakt.kill(standby.name)


def test_both_scheduler_pairs_are_ready_and_one_holds_the_lease(kompakt: ClusterSession, pair: Pair, standby: Pair) -> None:
    for one in (pair, standby):
        eventually(lambda one=one: ready_pair(kompakt, one), f"{one.identity} is ready")  # type: ignore[misc]
    assert lease_holder(kompakt, SCHEDULER_LEASE).startswith(f"{pair.identity}_")


def test_an_operator_that_is_refused_the_lease_is_alive_and_not_ready(kompakt: ClusterSession) -> None:
    """It may not read Leases of this namespace."""
    elsewhere = kompakt.parts.operator("ready-2", "--lease-namespace=default")
    kompakt.start(elsewhere)
    try:
        url = f"http://127.0.0.1:{flag(elsewhere, 'health-port')}/readyz"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, timeout=5)
        assert "has not answered about the Lease" in caught.value.read().decode()
        caught.value.close()
    finally:
        kompakt.kill(elsewhere.name)
