"""One cluster with two real nodes and kompakt in it for all tests of this level (root; named reason for the skip otherwise)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import older, publishing
from tests.support.node.jobs import Jobs
from tests.support.node.publishing import Published
from tests.support.node.world import World
from tools.kube import demo, elsewhere, host, install, real, scatter, stack
from tools.kube.holding import HoldingWatch
from tools.kube.stack import Images

NAME = os.environ.get("KOMPAKT_NODE_TESTS", "node-tests")  # the cluster's name: several people may test on one machine
FIRST_RUN = 2400  # seconds: with cold caches the images are made within the first test


# What asks the API server only; all else reaches into nodes, which are processes of this machine.
ANYWHERE = ("test_path.py",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(FIRST_RUN))
            if os.environ.get("KOMPAKT_CLUSTER") and item.path.name not in ANYWHERE:
                item.add_marker(pytest.mark.skip(reason="reaches into nodes; with KOMPAKT_CLUSTER they stand elsewhere"))


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    return older.prepare(print, tmp_path_factory.mktemp("older-images"))


@pytest.fixture(scope="session")
def published(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The runtime's image of HEAD as it is published, built once: that takes a minute."""
    return publishing.runtime(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="session")
def world(images: Images) -> Iterator[World]:
    """The cluster with its nodes and DNS."""
    try:
        cluster = stack.start(NAME, stack.MACHINES, stack.SIMULATED, images, print)
        yield World(cluster, stack.kubectl_of(cluster), images)
    finally:
        real.remove(NAME, print)


def apart() -> World:
    """The cluster that KOMPAKT_CLUSTER chose, with the chart installed. It is left as it is; `make demo-down` removes kompakt."""
    cluster = elsewhere.brought("kompakt-tests", print)
    install.helm_install(cluster, cluster.images)
    install.await_gpus(cluster.kubectl, dict.fromkeys(cluster.machines, scatter.GPUS))
    return World(cluster, cluster.kubectl, cluster.images, cluster.machines)


@pytest.fixture(scope="session")
def installed(request: pytest.FixtureRequest) -> World:
    """The cluster with the chart installed and all GPUs offered."""
    if elsewhere.chosen():
        return apart()
    world: World = request.getfixturevalue("world")
    demo.install_kompakt(world.cluster, world.kubectl, world.images)
    return world


@pytest.fixture(scope="session")
def holding(installed: World) -> Iterator[HoldingWatch]:
    """The watch over the one invariant: no GPU may be held by two pods until the end."""
    watch = HoldingWatch(str(installed.cluster.kubeconfig))
    yield watch
    watch.close()
    assert not watch.violations, "\n".join(watch.violations)
    assert watch.events > 0


@pytest.fixture
def crossing(holding: HoldingWatch) -> Iterator[None]:
    """While kubelets are killed, kubelet may cross a plan; elsewhere only while a node's device plugin is replaced."""
    before = len(holding.holders.crossed)
    holding.holders.crossing = True
    yield
    holding.holders.crossing = False
    print("plans that kubelet crossed:", *holding.holders.crossed[before:], sep="\n")


@pytest.fixture(scope="session")
def kompakt(installed: World, holding: HoldingWatch) -> World:
    """The cluster with kompakt in it, under that watch."""
    return installed


@pytest.fixture
def jobs(kompakt: World) -> Iterator[Jobs]:
    """Applies jobs that are deleted after the test; all their GPUs must come back."""
    found = Jobs(kompakt)
    yield found
    found.delete()
