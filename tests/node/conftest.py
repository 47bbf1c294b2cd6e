"""One cluster with two real nodes for all tests of this level (root; named reason for the skip otherwise)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.kube import host, real, stack
from tools.kube.kubectl import Kubectl
from tools.kube.real import RealCluster
from tools.kube.stack import Images

NAME = "node-tests"
FIRST_RUN = 2400  # seconds: with cold caches the images are made within the first test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(FIRST_RUN))


@dataclass(frozen=True)
class World:
    """The running cluster, how to ask it, and the images that it was made from."""

    cluster: RealCluster
    kubectl: Kubectl
    images: Images


@pytest.fixture(scope="session")
def images() -> Images:
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    return stack.prepare(print, ours=False)


@pytest.fixture(scope="session")
def world(images: Images) -> Iterator[World]:
    try:
        cluster = stack.start(NAME, stack.MACHINES, stack.SIMULATED, images, print)
        yield World(cluster, stack.kubectl_of(cluster), images)
    finally:
        real.remove(NAME, print)
