"""One cluster with two real nodes and kompakt in it for all tests of this level (root; named reason for the skip otherwise)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.kube import demo, host, real, stack
from tools.kube.holding import HoldingWatch
from tools.kube.kubectl import Kubectl
from tools.kube.real import RealCluster
from tools.kube.stack import Images

NAME = os.environ.get("KOMPAKT_NODE_TESTS", "node-tests")  # the cluster's name: several people may test on one machine
FIRST_RUN = 2400  # seconds: with cold caches the images are made within the first test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(FIRST_RUN))


@dataclass(frozen=True)
class World:
    """The running cluster, how to ask it, the images that it was made from, and the watch over the one invariant."""

    cluster: RealCluster
    kubectl: Kubectl
    images: Images


@pytest.fixture(scope="session")
def images() -> Images:
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    return stack.prepare(print)


@pytest.fixture(scope="session")
def world(images: Images) -> Iterator[World]:
    """The cluster with its nodes and DNS."""
    try:
        cluster = stack.start(NAME, stack.MACHINES, stack.SIMULATED, images, print)
        yield World(cluster, stack.kubectl_of(cluster), images)
    finally:
        real.remove(NAME, print)


@pytest.fixture(scope="session")
def kompakt(world: World) -> Iterator[World]:
    """The cluster with the chart installed and all GPUs offered; no GPU may be held by two pods until the end."""
    demo.install_kompakt(world.cluster, world.kubectl, world.images)
    watch = HoldingWatch(str(world.cluster.kubeconfig))
    yield world
    watch.close()
    assert watch.violations == []
    assert watch.events > 0
