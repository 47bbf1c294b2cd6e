"""`kompakt-device-plugin`: reports the node's link graph and hands out exactly the GPUs that were chosen."""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from kompakt_client import memory
from kompakt_client.reviews import Reviews
from kompakt_client.transport import connect
from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_device_plugin import health
from kompakt_device_plugin.agent import Agent
from kompakt_device_plugin.allocations import Allocations, StillRunning
from kompakt_device_plugin.api import PluginApi
from kompakt_device_plugin.cdi import Cdi, NodeCdi
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.gpu_resource import DEFAULT, Allocation, GpuResource
from kompakt_device_plugin.handover import RealGpus, environment_only
from kompakt_device_plugin.isolation import IsolationLevel, NodeIsolation
from kompakt_device_plugin.journal import Journal
from kompakt_device_plugin.metrics import PluginMetrics
from kompakt_device_plugin.node_lock import NodeLock
from kompakt_device_plugin.podresources import POD_RESOURCES, PodResources
from kompakt_device_plugin.pods import NodePods
from kompakt_device_plugin.registration import SOCKETS, Registrar
from kompakt_device_plugin.rivals import RivalSockets
from kompakt_device_plugin.servicer import PluginServicer
from kompakt_device_plugin.source import SOURCES, TopologySource, open_source

log = logging.getLogger("kompakt_device_plugin")
ANOTHER: Final = "another process that serves this node"
LOOK_SECONDS: Final = 0.2  # between two looks at kubelet's socket, and at the lock of another process
SWITCH_SECONDS: Final = 0.001
FLUSH_SECONDS: Final = 1.0  # at the end, for what is still to be written
CLOSE_SECONDS: Final = 1.0  # at the end, for the driver to let go
SOURCE_SECONDS: Final = 5.0  # how long one wait for news from the source lasts
SOURCE_PAUSE: Final = 1.0  # after a wait that broke


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person decides about a plugin, apart from where things are."""

    own: frozenset[GpuUuid] = frozenset()  # ours on nodes whose other GPUs another plugin offers
    numa: bool = False  # kubelet hears of NUMA nodes
    resource: GpuResource = DEFAULT
    cdi: NodeCdi = field(default_factory=NodeCdi)
    isolation: NodeIsolation = field(default_factory=NodeIsolation)


_DEFAULT: Final = Choices()


class Plugin:
    """One device plugin for one node: the parts and the threads between them."""

    def __init__(
        self, api: PluginApi, node: NodeName, source: TopologySource, kubelet_dir: Path, choices: Choices = _DEFAULT
    ) -> None:
        self.stop, self.metrics, self.devices = threading.Event(), PluginMetrics(), Devices()
        self._offers = choices.resource.ours
        self._node, self._source, self.pods = node, source, NodePods(resource=choices.resource.name)
        self._lock, self._journal = NodeLock(kubelet_dir / SOCKETS), Journal(kubelet_dir / SOCKETS)
        text = source.name == "text"  # there is nothing that a container could get
        others = text or not choices.resource.ours  # or how it gets it is others' affair
        self._resources, self.still_running = PodResources(kubelet_dir, choices.resource.name), StillRunning(self.pods)
        allocations = Allocations(self._resources, self.pods, self.devices, self._journal, self.still_running)
        self.agent = Agent(
            api,
            node,
            source,
            allocations,
            self.pods,
            self.devices,
            self._journal,
            self.metrics,
            self.stop,
            choices.own,
            NodeCdi(Cdi.NEVER) if others else choices.cdi,
            NodeIsolation() if others else choices.isolation,
            choices.resource,
            RivalSockets(kubelet_dir, choices.resource.name),
        )
        self._servicer = PluginServicer(
            self.devices,
            self.pods,
            self._journal,
            self.metrics,
            self.agent.ask,
            allocated=self.agent.allocated,
            strange=self.agent.strange,
            busy=source.busy,
            alive=self.still_running,
            answer=environment_only if text else RealGpus(source.minor, self.devices.place, self.agent.named),
            numa=choices.numa,
        )
        self._registrar = Registrar(
            kubelet_dir, self.devices, self._servicer, self.metrics, time.monotonic, choices.resource.name
        )
        self._beats = [health.Heartbeat(time.monotonic)]
        self._waits_for = ANOTHER

    def run(self) -> None:
        """Until `stop` is set: waits for its turn on this node, then watches, reports and stays registered."""
        if not self._offers or self._turn_came():
            self._serve()
        closing = threading.Thread(target=self._source.close, name="closing", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            log.warning("the driver hangs and is left as it is")
        self._resources.close()
        self._lock.release()

    def _turn_came(self) -> bool:
        said = ""
        while not self.stop.is_set():
            try:
                if self._lock.take():
                    return True
                trouble, self._waits_for = f"another process serves node {self._node}: waiting for its end", ANOTHER
            except OSError as error:
                trouble = f"cannot take the lock of this node, is kubelet's folder mounted writable? {error}"
                self._waits_for = f"the lock of this node: {error}"
            if trouble != said:
                log.warning("%s", trouble)
            said = trouble
            self._beats[0].beat()
            self.stop.wait(LOOK_SECONDS)
        return False

    def _serve(self) -> None:
        self._waits_for = ""
        self._journal.load()
        for name, work in (("agent", self._keep_in_step), ("source", self._listen_to_source)):
            self._beats.append(beat := health.Heartbeat(time.monotonic))
            threading.Thread(target=work, args=[beat], name=name, daemon=True).start()
        while not self.stop.wait(LOOK_SECONDS):
            if self._offers:
                self._registrar.step()
            self._beats[0].beat()
        if self._offers:
            self._registrar.close()
            self._journal.flush(FLUSH_SECONDS)

    def _listen_to_source(self, beat: health.Heartbeat) -> None:
        while not self.stop.is_set():
            try:
                for change in self._source.wait(SOURCE_SECONDS):
                    self.agent.heard(change)
                beat.beat()
            except Exception:  # without this thread no unhealthy GPU would ever be noticed
                log.exception("waiting for news of the GPUs broke, again in %.0f s", SOURCE_PAUSE)
                self.stop.wait(SOURCE_PAUSE)

    def _keep_in_step(self, beat: health.Heartbeat) -> None:
        watching = threading.Thread(target=self.agent.watch, name="first lists", daemon=True)
        watching.start()
        while watching.is_alive():  # the API server may be away for long: that is no hanging thread
            watching.join(1.0)
            beat.beat()
        self.agent.run(beat)

    def alive(self) -> bool:
        """Whether all threads go round: this process's main one, those of agent and source, and the watches."""
        return all(beat.alive for beat in self._beats) and self.agent.watches_alive()

    def waits_for(self) -> str:
        """What keeps this process from serving its node; empty once it does."""
        return self._waits_for or ("" if self.agent.settled.is_set() else "its first round with API server and kubelet")


def prepare_process() -> None:
    """One heap for all threads; and a thread that answers kubelet waits for a busy one of this process for a millisecond, not
    for CPython's usual five.
    """
    memory.one_heap()
    sys.setswitchinterval(SWITCH_SECONDS)


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a sentence where it is wrong."""
    known = parser()
    options = known.parse_args(arguments)
    if not options.node_name:
        known.error("the node has no name: give --node-name or set NODE_NAME")
    if not 0 <= options.health_port < 65536:
        known.error(f"--health-port {options.health_port} is no port; give 0 to 65535")
    needed = options.kubelet_dir / (SOCKETS if options.allocation is Allocation.DEVICE_PLUGIN else POD_RESOURCES)
    if not needed.is_dir():
        known.error(f"{needed} is no folder: --kubelet-dir must name kubelet's folder, mounted from the host")
    return options


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="kompakt-device-plugin", description=__doc__)
    made.add_argument("--node-name", default=os.environ.get("NODE_NAME"), help="the node this runs on (default: $NODE_NAME)")
    made.add_argument("--kubeconfig", type=Path, help="how to reach the API server (default: the pod's service account)")
    made.add_argument(
        "--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"), help="kubelet's folder (default: %(default)s)"
    )
    made.add_argument("--source", choices=SOURCES, default="text", help="where the link graph comes from (default: %(default)s)")
    made.add_argument("--machines-dir", type=Path, default=Path("/etc/kompakt/machines"), help="descriptions for the text source")
    made.add_argument("--nvml-library", type=Path, help="another libnvidia-ml.so than the system's (source nvml)")
    made.add_argument(
        "--own-gpus",
        type=uuids,
        default=frozenset(),
        help="UUIDs, comma-separated: on nodes that have some of them, offer these only",
    )
    made.add_argument(
        "--resource",
        choices=contract.RESOURCES,
        default=contract.RESOURCE,
        help="by which name GPUs are offered (default: %(default)s; nvidia.com/gpu: in place of NVIDIA's device plugin)",
    )
    made.add_argument(
        "--allocation",
        type=Allocation,
        choices=list(Allocation),
        default=Allocation.DEVICE_PLUGIN,
        help="who hands out GPUs (default: %(default)s; report: somebody else does, by --resource, and nothing is offered here)",
    )
    made.add_argument("--skip-xids", default="", help="XIDs that leave a GPU healthy, comma-separated, beside the built-in ones")
    made.add_argument("--heed-xids", default="", help="XIDs that make a GPU unhealthy although they would be skipped")
    made.add_argument(
        "--cdi",
        type=Cdi,
        choices=list(Cdi),
        default=Cdi.AUTO,
        help="whether GPUs are handed over as CDI devices (default: auto, by runtimes known to take them; never: device files)",
    )
    made.add_argument(
        "--isolation",
        type=IsolationLevel,
        choices=list(IsolationLevel),
        default=IsolationLevel.DEFAULT,
        help="strict: offer no GPU on a node that may show GPUs to whoever asks by NVIDIA_VISIBLE_DEVICES (default: say so)",
    )
    made.add_argument(
        "--isolation-probe",
        type=Path,
        help="what a container was shown that asked by that variable: the file of isolation_probe, or /dev for this one itself",
    )
    made.add_argument("--toolkit-dir", type=Path, help="folder of the config.toml of NVIDIA's container toolkit, to look at it")
    made.add_argument("--numa-hints", action="store_true", help="tell kubelet's Topology Manager the GPUs' NUMA nodes")
    made.add_argument(
        "--health-port", type=int, default=8903, help="port of /healthz, /readyz and /metrics (default: %(default)s)"
    )
    made.add_argument("--plain-metrics", action="store_true", help="/metrics answers without a token whose account may get it")
    return made


def uuids(text: str) -> frozenset[GpuUuid]:
    """The UUIDs of a comma-separated list. Raises argparse.ArgumentTypeError for what can be none."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        if not part.startswith(("GPU-", "MIG-")):
            raise argparse.ArgumentTypeError(
                f"{part[:64]!r} is no UUID of a GPU; they begin with GPU- (nvidia-smi -L lists them)"
            )
        if part.startswith("MIG-"):
            raise argparse.ArgumentTypeError(f"{part[:64]!r} is a MIG device; kompakt hands out whole GPUs only")
    return frozenset(map(GpuUuid, found))


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    options = options_of()
    prepare_process()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        api = connect(str(options.kubeconfig) if options.kubeconfig else None, "kompakt-device-plugin")
    except InvalidInput as error:
        sys.exit(f"kompakt-device-plugin: cannot reach the API server: {error}")
    try:
        source = open_source(
            options.source,
            machines=options.machines_dir,
            library=options.nvml_library,
            skip_xids=options.skip_xids,
            heed_xids=options.heed_xids,
        )
    except InvalidInput as error:
        sys.exit(f"kompakt-device-plugin: {error}")
    isolation = NodeIsolation(options.isolation, options.isolation_probe, options.toolkit_dir)
    resource = GpuResource(options.resource, options.allocation)
    choices = Choices(options.own_gpus, options.numa_hints, resource, NodeCdi(options.cdi), isolation)
    plugin = Plugin(api, NodeName(options.node_name), source, options.kubelet_dir, choices)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: plugin.stop.set())
    try:
        reviews = None if options.plain_metrics else Reviews(api)
        server = health.serve(options.health_port, plugin.alive, plugin.waits_for, plugin.metrics.registry, reviews)
    except OSError as error:
        sys.exit(f"kompakt-device-plugin: port {options.health_port} cannot be used: {error.strerror}")
    plugin.run()
    server.shutdown()
    leave()


def leave() -> NoReturn:
    """Ends this process now. Python itself would first wait for every thread of a pool, and one may hang in the driver."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
