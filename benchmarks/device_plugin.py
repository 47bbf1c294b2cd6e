"""How long kubelet waits for the device plugin, how much memory the plugin takes, and what a discovery costs.

    python -m benchmarks.device_plugin [--rounds 2000]

A whole plugin runs in a process of its own, over NVML through the tests' stand-in for the driver's library (needs gcc); the
API server is a dictionary in that process, so a miss shows the plugin's own share: asking, hearing that there is no pod,
searching. A third process asks over a real socket with kubelet's own client (needs Go, or fetches it): one pod arrives, its GPUs
are asked for and handed over, it goes. Beside each hit stands an echo: a call with the same ids over the same socket to which
the plugin answers nothing (PreStartContainer), so what gRPC, socket and machine cost in the same run.
Memory is that of a process whose modules lie there compiled, as in an image: with PYTHONDONTWRITEBYTECODE set it is more.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import msgspec

from benchmarks.kubelet_client import KubeletClient, build_client
from kompakt_client.errors import NotFound
from kompakt_client.requests import NO_QUERY, Answer, ApiRequest, Object, Query
from kompakt_core import contract
from kompakt_core.ids import NodeName
from kompakt_device_plugin.api import NODES
from kompakt_device_plugin.main import Plugin, prepare_process
from kompakt_device_plugin.nvml.source import NvmlSource
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc
from kompakt_device_plugin.proto import podresources_pb2 as pr
from kompakt_device_plugin.proto import podresources_pb2_grpc as pr_grpc
from tests.support.nvml_shim.machine import describe
from tests.support.nvml_shim.shim import Shim, build

if TYPE_CHECKING:  # loaded only to print: the plugin's process imports this module, and its memory is measured
    from rich.table import Table

Batch = list[bytes]
MACHINES: Final = ("hgx-h100-8", "dgx2-16xv100")
HIT_MILLISECONDS: Final = 5.0  # bar for the 99th percentile
MEGABYTES: Final = 80  # bar for resident memory


@dataclass
class StillApi:
    """An API server on which nothing happens: one node, no pods, every write is taken."""

    node: str
    _stop: threading.Event = field(default_factory=threading.Event)

    def get(self, path: str) -> Object:
        raise NotFound(path, 404, "NotFound")

    def list(self, path: str, query: Query = NO_QUERY, *, seconds: float = 30.0) -> Object:
        node = {"metadata": {"name": self.node, "uid": "uid-node", "resourceVersion": "1"}}
        return {"items": [node] if path == NODES else [], "metadata": {"resourceVersion": "1"}}

    def exchange(self, request: ApiRequest) -> Answer:
        return Answer(200, msgspec.json.encode(self.list(request.path)))

    def watch(self, path: str, query: Query, silence: float) -> "StillApi":
        return self

    def batches(self) -> "Iterator[Batch]":
        self._stop.wait()
        yield from ()

    def stop(self) -> None:
        """Nothing to end."""

    def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "2"}}

    def merge(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(body)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(body)


class Kubelet(pb_grpc.RegistrationServicer, pr_grpc.PodResourcesListerServicer):  # type: ignore[misc]
    """Takes a registration and lists no pods."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.endpoint = folder, ""
        self.registered = threading.Event()
        self._servers: list[grpc.Server] = []
        for name, add in (
            ("device-plugins", pb_grpc.add_RegistrationServicer_to_server),
            ("pod-resources", pr_grpc.add_PodResourcesListerServicer_to_server),
        ):
            (folder / name).mkdir()
            server = grpc.server(ThreadPoolExecutor(2))
            add(self, server)
            server.add_insecure_port(f"unix://{folder / name / 'kubelet.sock'}")
            server.start()
            self._servers.append(server)

    def Register(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.endpoint = request.endpoint
        self.registered.set()
        return pb.Empty()

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pr.ListPodResourcesResponse()


def serve(machine: str, kubelet: Path, library: Path, pipe: Connection) -> None:
    """The plugin's process: does what the pipe says until it says stop."""
    shim = Shim(library)
    shim.describe(describe(machine))
    prepare_process()
    source = NvmlSource(library)
    plugin = Plugin(StillApi("node-1"), NodeName("node-1"), source, kubelet)
    thread = threading.Thread(target=plugin.run)
    thread.start()
    while (order := pipe.recv())[0] != "stop":
        kind, obj = order
        if kind == "discover":
            shim.forget_calls()
            began = time.perf_counter()
            source._refresh()
            pipe.send((shim.calls(), time.perf_counter() - began))
        elif kind == "memory":
            pipe.send(resident_megabytes())
        else:
            plugin.pods.event(kind, obj)
            pipe.send(None)
    plugin.stop.set()
    thread.join()


def resident_megabytes() -> float:
    """Resident memory of this process, 10^6 bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024 / 1e6


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured on one machine; times in seconds, one per round."""

    machine: str
    gpus: int
    hits: list[float]
    echoes: list[float]
    misses: list[float]
    handed: list[float]
    wrong: int  # answers to a hit that were not the set written on the pod
    megabytes: float
    calls: int
    discovery: float


def measure(machine: str, library: Path, client: Path, rounds: int) -> Result:
    """Runs a plugin for that machine, and `client` as its kubelet."""
    with tempfile.TemporaryDirectory(prefix="kp-") as folder:
        kubelet = Kubelet(Path(folder))
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(machine, Path(folder), library, theirs))
        process.start()
        try:
            if not kubelet.registered.wait(60):
                raise SystemExit(f"the plugin for {machine} did not register within 60 s")
            asking = KubeletClient(client, kubelet.folder / "device-plugins" / kubelet.endpoint)
            return play(machine, asking, ours, rounds)
        finally:
            ours.send(("stop", None))
            process.join()


def play(machine: str, kubelet: KubeletClient, pipe: Connection, rounds: int) -> Result:
    rng, wrong = random.Random(1), 0
    hits: list[float] = []
    echoes: list[float] = []
    misses: list[float] = []
    handed: list[float] = []
    for number in range(rounds):
        chosen = rng.sample(kubelet.gpus, rng.choice((1, 2, 4, 8)))
        pod = pod_of(number, chosen)
        ask(pipe, "ADDED", pod)
        first = [kubelet.echo(kubelet.gpus)] if number % 2 else []  # who comes first pays for waking up the plugin
        answer = kubelet.prefer(kubelet.gpus, len(chosen))
        echoes.extend(one.seconds for one in first or [kubelet.echo(kubelet.gpus)])
        hits.append(answer.seconds)
        wrong += answer.ids != chosen
        handed.append(kubelet.allocate(chosen).seconds)
        ask(pipe, "DELETED", {**pod, "status": {"phase": "Succeeded"}})
        if number % 10 == 0:
            offered = rng.sample(kubelet.gpus, rng.randrange(len(chosen), len(kubelet.gpus) + 1))
            misses.append(kubelet.prefer(offered, len(chosen)).seconds)
    megabytes = ask(pipe, "memory", None)
    calls, discovery = ask(pipe, "discover", None)
    kubelet.close()
    return Result(machine, len(kubelet.gpus), hits, echoes, misses, handed, wrong, megabytes, calls, discovery)


def ask(pipe: Connection, kind: str, obj: Any) -> Any:
    """One order to the plugin's process; its answer."""
    pipe.send((kind, obj))
    return pipe.recv()


def pod_of(number: int, gpus: Sequence[str]) -> dict[str, Any]:
    """A bound pod on which this set is written."""
    notes = {contract.ANN_GPUS: ",".join(gpus)}
    container = {"name": "c", "resources": {"limits": {contract.RESOURCE: str(len(gpus))}}}
    return {
        "metadata": {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}", "annotations": notes},
        "spec": {"nodeName": "node-1", "containers": [container]},
        "status": {"phase": "Pending"},
    }


def milliseconds(times: Sequence[float], percent: int) -> float:
    """A percentile of seconds, in milliseconds."""
    return 1000 * statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


def table(results: Sequence[Result]) -> "Table":
    """One row for each machine."""
    from rich.table import Table

    shown = Table(title="The device plugin as kubelet meets it; milliseconds over unix sockets", title_justify="left")
    names = (
        "machine",
        "GPUs",
        "hit p50",
        "p99",
        "echo p50",
        "p99",
        "Allocate p50",
        "p99",
        "miss p50",
        "p99",
        "MB",
        "NVML calls",
        "ms",
    )
    for name in names:
        shown.add_column(name, justify="left" if name == "machine" else "right")
    for one in results:
        times = (milliseconds(part, percent) for part in (one.hits, one.echoes, one.handed, one.misses) for percent in (50, 99))
        about = (f"{one.megabytes:.0f}", str(one.calls), f"{1000 * one.discovery:.1f}")
        shown.add_row(one.machine, str(one.gpus), *(f"{value:.2f}" for value in times), *about)
    return shown


def main() -> None:
    """Prints the table; ends with 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000, help="pods on each machine (default: %(default)s)")
    options = parser.parse_args()
    client = build_client()
    with tempfile.TemporaryDirectory(prefix="kp-shim-") as folder:
        library = build(Path(folder))
        results = [measure(machine, library, client, options.rounds) for machine in MACHINES]
    from rich.console import Console

    console = Console(width=130)
    console.print(table(results))
    console.print(f"{options.rounds} pods each; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    late = [one.machine for one in results if milliseconds(one.hits, 99) > HIT_MILLISECONDS]
    large = [one.machine for one in results if one.megabytes >= MEGABYTES]
    wrong = [one.machine for one in results if one.wrong]
    for machines, bar in ((late, f"hit p99 <= {HIT_MILLISECONDS} ms"), (large, f"< {MEGABYTES} MB"), (wrong, "hit = chosen")):
        console.print(f"{bar}: {'missed by ' + ', '.join(machines) if machines else 'holds'}")
    sys.exit(bool(late or large or wrong))


if __name__ == "__main__":
    main()
