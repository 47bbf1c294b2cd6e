"""A cluster for drills: our parts go by clocks that can be stepped, and through a proxy that can be told to misbehave.

It is a file's own, since etcd is restored under it.
"""

import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kompakt_core.contract import OPERATOR_LEASE
from tests.support.cluster import stepped_clock, waits
from tests.support.cluster.detour import asked
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.replacing import OPERATOR, SCHEDULER_LEASE
from tests.support.cluster.stepped_clock import SteppedClock
from tests.support.cluster.storm import insisting, kubelets_anew
from tools.kube.components import control_plane
from tools.kube.parts import NAMESPACE, Pair, can_set_hostname
from tools.kube.session import ClusterSession, eventually

LEASES = (OPERATOR_LEASE, SCHEDULER_LEASE)
PLUGINS = "simulated-plugins"
CLIENTS = ("kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True)
class Drilled:
    """The cluster and what can be done to it. `clock`: that of all our parts, where there is a C compiler."""

    cluster: ClusterSession
    proxy: str
    pair: Pair
    clock: SteppedClock | None

    def trouble(self, rate: float, *ways: str, delay: float = 0.0, only: str = "") -> None:
        """What our parts hear of the API server from now on."""
        told = {"rate": rate, "ways": ways, "delay": delay, "only": only}
        asked(self.cluster, f"{self.proxy}/faulty/trouble", told)

    def silence(self, *plurals: str) -> None:
        """Of which kinds their watches say nothing from now on."""
        asked(self.cluster, f"{self.proxy}/faulty/silent", ["none", *plurals])

    def counts(self) -> dict[str, int]:
        """How many of their requests were handled how."""
        return dict(asked(self.cluster, f"{self.proxy}/faulty"))

    def holder(self, lease: str) -> str:
        """Who holds it, "" for nobody."""
        found = self.cluster.kubectl(
            "get", "lease", lease, f"--namespace={NAMESPACE}", "--output=jsonpath={.spec.holderIdentity}"
        )
        return found.partition("_")[0]

    def take_away(self, lease: str) -> None:
        """Give a Lease to somebody who is not there, for a second."""
        spec = '{"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1}}'
        self.cluster.kubectl("patch", "lease", lease, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={spec}")

    def back_up(self, folder: Path) -> None:
        """etcd's files as they are at one moment, to be found by `restore`."""
        etcd = self.cluster.plane.processes["etcd"]
        etcd.signal(signal.SIGSTOP)
        try:
            shutil.copytree(self.cluster.plane.folder / "etcd", folder)
        finally:
            etcd.signal(signal.SIGCONT)

    def restore(self, folder: Path) -> None:
        """As the book says: the API server and etcd stop, files are replaced, all that is Kubernetes' own starts anew."""
        plane = self.cluster.plane
        usual = {c.name: c for c in control_plane(self.cluster.find, plane.addresses, plane.keys, plane.folder)}
        for name in ("kube-apiserver", "etcd"):
            self.cluster.kill(name)
        shutil.rmtree(plane.folder / "etcd")
        shutil.copytree(folder, plane.folder / "etcd")
        for name in ("etcd", "kube-apiserver"):
            self.cluster.start(usual[name])
        for name in CLIENTS:
            self.cluster.kill(name)
            self.cluster.start(usual[name])
        insisting(lambda: self.cluster.core.list_node())
        kubelets_anew(self.cluster)

    @contextmanager
    def well_after(self, what: str) -> Iterator[None]:
        """Prints how long the block took: until all is well."""
        began = time.monotonic()
        yield
        print(f"{what}: all well {time.monotonic() - began:.1f} s after its end", flush=True)


@contextmanager
def drilled(folder: Path, *flags: str) -> Iterator[Drilled]:
    """All our parts at work. flags: further ones of the operator."""
    with own_cluster(folder, MACHINES) as cluster:
        cluster.parts.install(waits.LEASE | waits.FACTOR_SETTINGS)
        address, proxy = cluster.parts.faulty_server(1, rate=0)
        cluster.start(proxy)
        cluster.parts.server = address
        clock = stepped_clock.made(folder)
        pair, *components = cluster.parts.pair("scheduler-0" if can_set_hostname() else socket.gethostname())
        extender, scheduler = components
        ours = (cluster.parts.simulated_plugins(), extender, cluster.parts.operator(OPERATOR, *flags))
        cluster.start(*(clock.under(part) if clock else part for part in ours), scheduler)
        found = Drilled(cluster, address, pair, clock)
        eventually(lambda: all(found.holder(lease) for lease in LEASES), "both Leases held")
        yield found
