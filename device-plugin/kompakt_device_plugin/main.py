"""`kompakt-device-plugin`: reports the node's link graph and hands out exactly the GPUs that were chosen."""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kubernetes.config import ConfigException

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName
from kompakt_device_plugin import health
from kompakt_device_plugin.agent import Agent
from kompakt_device_plugin.api import Api, connect
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.podresources import PodResources
from kompakt_device_plugin.pods import NodePods
from kompakt_device_plugin.registration import SOCKETS, Registrar
from kompakt_device_plugin.servicer import PluginServicer
from kompakt_device_plugin.source import Source, TextSource

log = logging.getLogger("kompakt_device_plugin")
LOOK_SECONDS: Final = 0.2  # between two looks at kubelet's socket


class Plugin:
    """One device plugin for one node: the parts and the threads between them."""

    def __init__(self, api: Api, node: NodeName, source: Source, kubelet_dir: Path) -> None:
        self.stop = threading.Event()
        self._pods, self.devices = NodePods(), Devices()
        self._resources = PodResources(kubelet_dir)
        self._agent = Agent(api, node, source, self._resources, self._pods, self.devices, self.stop)
        self._servicer = PluginServicer(self.devices, self._pods, self._agent.ask, allocated=self._agent.allocated)
        self._registrar = Registrar(kubelet_dir, self.devices, self._servicer, time.monotonic)
        self._beats = [health.Beat(time.monotonic), health.Beat(time.monotonic)]

    def run(self) -> None:
        """Until `stop` is set: watches, reports and stays registered."""
        threading.Thread(target=self._keep_in_step, name="agent", daemon=True).start()
        while not self.stop.wait(LOOK_SECONDS):
            self._registrar.step()
            self._beats[0].beat()
        self._registrar.close()
        self._resources.close()

    def _keep_in_step(self) -> None:
        watching = threading.Thread(target=self._agent.watch, name="first lists", daemon=True)
        watching.start()
        while watching.is_alive():  # the API server may be away for long: that is no hanging thread
            watching.join(1.0)
            self._beats[1].beat()
        self._agent.run(self._beats[1])

    def alive(self) -> bool:
        """Whether both threads go round."""
        return all(beat.alive for beat in self._beats)

    def metrics(self) -> dict[str, float]:
        """What happened so far, by metric name."""
        counts, corrector = self._servicer.counts, self._agent.corrector
        return {
            "kompakt_device_plugin_registrations_total": self._registrar.registrations,
            "kompakt_device_plugin_allocations_total": counts.allocations,
            "kompakt_device_plugin_preferred_hits_total": counts.hits,
            "kompakt_device_plugin_preferred_late_hits_total": counts.late_hits,
            "kompakt_device_plugin_preferred_misses_total": counts.misses,
            "kompakt_device_plugin_corrected_pods_total": corrector.corrected,
            "kompakt_device_plugin_reported_pods_total": corrector.reported,
            "kompakt_device_plugin_holding_pods": len(self.devices.holding),
        }


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a sentence where it is wrong."""
    parser = argparse.ArgumentParser(prog="kompakt-device-plugin", description=__doc__)
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME"), help="the node this runs on (default: $NODE_NAME)")
    parser.add_argument("--kubeconfig", type=Path, help="how to reach the API server (default: the pod's service account)")
    parser.add_argument(
        "--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"), help="kubelet's folder (default: %(default)s)"
    )
    parser.add_argument("--source", choices=("text", "nvml"), default="text", help="where the link graph comes from")
    parser.add_argument(
        "--machines-dir", type=Path, default=Path("/etc/kompakt/machines"), help="descriptions for the text source"
    )
    parser.add_argument("--health-port", type=int, default=8903, help="port of /healthz and /metrics (default: %(default)s)")
    options = parser.parse_args(arguments)
    if not options.node_name:
        parser.error("the node has no name: give --node-name or set NODE_NAME")
    if options.source == "nvml":
        parser.error("--source nvml is not there yet: this version reads text descriptions only (--source text)")
    if not 0 <= options.health_port < 65536:
        parser.error(f"--health-port {options.health_port} is no port; give 0 to 65535")
    if not (options.kubelet_dir / SOCKETS).is_dir():
        parser.error(
            f"{options.kubelet_dir / SOCKETS} is no folder: --kubelet-dir must name kubelet's folder, mounted from the host"
        )
    return options


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    options = options_of()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        api = connect(str(options.kubeconfig) if options.kubeconfig else None)
    except (ConfigException, InvalidInput) as error:
        sys.exit(f"kompakt-device-plugin: cannot reach the API server: {error}")
    plugin = Plugin(api, NodeName(options.node_name), TextSource(options.machines_dir), options.kubelet_dir)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: plugin.stop.set())
    try:
        server = health.serve(options.health_port, plugin.alive, plugin.metrics)
    except OSError as error:
        sys.exit(f"kompakt-device-plugin: port {options.health_port} cannot be used: {error.strerror}")
    plugin.run()
    server.shutdown()


if __name__ == "__main__":
    main()
