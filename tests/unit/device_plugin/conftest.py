"""A kubelet of gRPC parts (real servers and clients over unix sockets) and an API server of dictionaries."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import LinkGraph
from tests.support.device_plugin.api import FakeApi, pod_object
from tests.support.device_plugin.kubelet import NODE, FakeKubelet, Parts, PluginClient, wait_until
from tests.support.device_plugin.whole import Ailing, Running

MEMORY = Path("/dev/shm")


@pytest.fixture
def make_pod() -> Callable[..., dict[str, Any]]:
    return pod_object


@pytest.fixture
def make_parts() -> Callable[[Path], Parts]:
    return Parts


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until


@pytest.fixture(scope="session")
def dgx1() -> LinkGraph:
    return read_description("dgx1-v100", NODE)


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    """Short: the path of a unix socket must fit in 107 bytes. In memory: a busy disk holds up what the plugin writes through."""
    folder = Path(tempfile.mkdtemp(prefix="kp-", dir=MEMORY if MEMORY.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def kubelet(kubelet_dir: Path) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(kubelet_dir)
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def client() -> Iterator[Callable[[Path], PluginClient]]:
    made: list[PluginClient] = []

    def make(socket: Path) -> PluginClient:
        made.append(PluginClient(socket))
        return made[-1]

    yield make
    for one in made:
        one.channel.close()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def machines(tmp_path):
    (tmp_path / "big").write_text("dgx1-v100")
    return tmp_path


@pytest.fixture
def plugin_with(api, kubelet, machines, client, until):
    """Makes whole plugins for one node, over a source or the description of its machine; all are stopped in the end."""
    made = []

    def make(source=None, cdi=None, isolation=None, **choices):
        made.append(Running(api, kubelet, machines, client, until, source, cdi, isolation, **choices))
        made[-1].node()
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def running(plugin_with):
    return plugin_with()


@pytest.fixture
def ailing(plugin_with, dgx1):
    """Over a source whose GPUs turn unhealthy and well as the test says."""
    return plugin_with(Ailing(dgx1))


@pytest.fixture
def gpus(dgx1):
    return tuple(gpu.uuid for gpu in dgx1.gpus)


@pytest.fixture
def deaf(running):
    """Pods that have processes whatever anybody says of them; all that is deleted at once counts by that alone."""
    living = set()
    running.plugin.still_running.unseen_for = 0.0
    running.plugin.still_running._alive = running.plugin._servicer._alive = lambda uids: living & set(uids)
    return living
