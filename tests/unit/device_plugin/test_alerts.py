"""Alerts of a real Prometheus that scrapes the plugin, whose kubelet and driver do what the alerts are about."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import grpc
import pytest

from kompakt_device_plugin import health
from tests.support.device_plugin.pods import xid
from tests.support.prometheus import Prometheus, job, prometheus
from tools.kube.session import eventually


@pytest.fixture
def watching(tmp_path: Path) -> Callable[..., AbstractContextManager[Prometheus]]:
    @contextmanager
    def watch(plugin) -> Iterator[Prometheus]:
        served = health.serve(0, plugin.alive, plugin.waits_for, plugin.metrics.registry)
        try:
            with prometheus(tmp_path / "prometheus", [job("device-plugin", f"127.0.0.1:{served.server_port}")]) as found:
                yield found
        finally:
            served.shutdown()
            served.server_close()

    return watch


def test_a_gpu_turns_unhealthy(ailing, watching, dgx1):
    ailing.start().listened()
    with watching(ailing.plugin) as seen:
        eventually(seen.scrapes_all, "scraped")
        assert seen.firing() == set()
        ailing.source.change(xid(dgx1, 3))
        eventually(lambda: seen.firing() == {"KompaktGPUUnhealthy"}, "it fires")
        ailing.source.change(dgx1.gpus[3])
        eventually(lambda: not seen.firing(), "nothing fires any more")


def test_another_plugin_offers_the_nodes_gpus(running, watching):
    running.start().listened()
    with watching(running.plugin) as seen:
        eventually(seen.scrapes_all, "scraped")
        assert seen.firing() == set()
        running.node({"capacity": {"nvidia.com/gpu": "8"}})
        eventually(lambda: seen.firing() == {"KompaktOtherDevicePlugin", "KompaktNodeNotReady"}, "it fires")
        running.node()
        eventually(lambda: not seen.firing(), "nothing fires any more")


def test_kubelet_gives_others_than_were_chosen_and_a_process_uses_what_it_gives(running, watching, gpus, deaf):
    call, _ = running.start().listened()
    with watching(running.plugin) as seen:
        eventually(seen.scrapes_all, "scraped")
        assert seen.firing() == set()
        running.bind("a", gpus[:2], phase="Running")
        running.kubelet.held["default", "a"] = gpus[2:4]
        call.allocate(gpus[2:4])
        eventually(lambda: seen.firing() == {"KompaktGPUsNotAsChosen"}, "it fires")
        deaf.add("uid-a")
        running.delete("a")
        del running.kubelet.held["default", "a"]
        with pytest.raises(grpc.RpcError):
            call.allocate(gpus[2:4])
        eventually(lambda: "KompaktAllocationsRejected" in seen.firing(), "it fires")
