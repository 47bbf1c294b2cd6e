"""Pods per second of a real kube-scheduler with our extender, beside the same scheduler without it.

    python -m benchmarks.scheduler_throughput [--nodes 1000 5000] [--pods 400] [--rounds 3]

Real: etcd, kube-apiserver, kube-scheduler, our extender. Simulated: the nodes (Ready by kwok, eight GPUs each, the machine
dgx1-v100) and what their device plugins report after each bound pod. A round has three runs on the same nodes:

- with: kube-scheduler with the chart's configuration, extender and all;
- without: the same configuration and profile, of which only the `extenders` stanza is taken out. GPUs are an extended resource
  in both, so kube-scheduler counts them itself; it chooses nodes by its own scores and nobody chooses GPUs;
- default: kube-scheduler's default configuration, which looks at a sample of the nodes (percentageOfNodesToScore) where ours
  looks at all.

In each run the scheduler is started and, once it leads, halted; a backlog of pods that ask for 1, 2, 4 or 8 GPUs in a fixed
random order is created; then it goes on. The rate is counted from the first pod that the watch shows bound to the last.
Meanwhile nothing else of the cluster runs (see benchmarks/fleet.py). Printed are the median over the rounds with the lowest
and highest, the ratio of the medians, and the processor time per pod of each process.
"""

import argparse
import random
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fleet import Binds, Plugins, cpu_seconds, create_pods, fleet, held_back, remove_pods
from kompakt_client.transport import ApiClient, connect
from kompakt_core.contract import ANN_GPUS, ANN_PATTERN, ANN_SENSITIVITY, RESOURCE, SCHEDULER_LEASE, SCHEDULER_NAME
from tools.kube.components import Component, control_plane
from tools.kube.parts import NAMESPACE, asking_headers
from tools.kube.processes import wait_until
from tools.kube.session import ClusterSession

KINDS = ("with", "without", "default")
# A scheduler that stands still while pods are created keeps its Lease.
LEASE = {"scheduler.lease.duration": "900s", "scheduler.lease.renewDeadline": "800s", "scheduler.lease.retryPeriod": "5s"}
IDENTITY = "throughput"
PATIENCE = 60.0  # seconds without a pod bound after which a run counts as stuck
SEED = 20261121


@dataclass(frozen=True, slots=True)
class Run:
    """`rate` in pods per second; `cpu` in milliseconds per pod by process; `verbs`: milliseconds per call, calls per pod."""

    rate: float
    cpu: Mapping[str, float]
    verbs: Mapping[str, tuple[float, float]]


def pods(kind: str, count: int) -> Iterator[dict[str, Any]]:
    """The backlog: the same sizes in the same order in every run."""
    chance = random.Random(SEED)
    for number in range(count):
        gpus = chance.choice((1, 2, 4, 8))
        limits = {RESOURCE: str(gpus), "cpu": "1", "memory": "1Gi"}
        container = {"name": "trainer", "image": "simulated", "resources": {"limits": limits}}
        yield {
            "metadata": {
                "name": f"{kind}-{number:05}",
                "annotations": {ANN_PATTERN: "Ring", ANN_SENSITIVITY: "High"},
            },
            "spec": {
                "schedulerName": "default-scheduler" if kind == "default" else SCHEDULER_NAME,
                "restartPolicy": "Never",
                "containers": [container],
            },
        }


def bare(component: Component, name: str) -> Component:
    """The component's program itself, without the loop that starts it again."""
    at = next(at for at, word in enumerate(component.argv) if word.startswith("while :;")) + 1
    return replace(component, name=name, argv=component.argv[at:])


def components(cluster: ClusterSession, kind: str) -> tuple[int, list[Component]]:
    """What runs in a run of this kind, the scheduler last, and the extender's health port."""
    plane = cluster.plane
    if kind == "default":
        (scheduler,) = control_plane(cluster.find, plane.addresses, plane.keys, plane.folder)[3:]
        return 0, [scheduler]
    pair, extender, scheduler = cluster.parts.pair(IDENTITY)
    if kind == "without":
        path = plane.folder / f"{IDENTITY}.yaml"
        config = yaml.safe_load(path.read_text())
        del config["extenders"]
        path.write_text(yaml.safe_dump(config))
        return 0, [bare(scheduler, "kube-scheduler")]
    return pair.health_port, [bare(extender, "extender"), bare(scheduler, "kube-scheduler")]


@contextmanager
def running(cluster: ClusterSession, kind: str) -> Iterator[int]:
    """The scheduler of a kind, leading and synced; gives the extender's health port (0: none)."""
    port, parts = components(cluster, kind)
    for part in parts:
        cluster.plane.begin_component(part)
    try:
        for part in parts:
            cluster.plane.await_component(part)
        if port and not wait_until(lambda: metric(cluster, port, "kompakt_extender_active") == 1 and ready(port), 120):
            raise SystemExit(f"the extender does not serve: {cluster.log_of('extender')[-2000:]}")
        time.sleep(3.0)
        yield port
    finally:
        for part in parts:
            cluster.plane.stop_component(part.name, grace=0)
        connect(str(cluster.kubeconfig)).request(
            "DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{SCHEDULER_LEASE}"
        )


def run(cluster: ClusterSession, api: ApiClient, plugins: Plugins, kind: str, count: int) -> Run:
    """One backlog, from the first pod bound to the last."""
    binds = Binds(plugins)
    with running(cluster, kind) as port, binds.following(api, "default"):
        with held_back(cluster.plane.processes["kube-scheduler"].pid):
            create_pods(api, "default", pods(kind, count))
            pids = {name: process.pid for name, process in cluster.plane.processes.items()}
            before, verbs_before = cpu_seconds(pids), verb_sums(cluster, port)
        binds.wait_for(count, PATIENCE)
        after, verbs_after = cpu_seconds(pids), verb_sums(cluster, port)
    check(kind, binds)
    moments = sorted(binds.moments.values())
    remove_pods(api, "default")
    plugins.release_all()
    cpu = {name: (after[name] - before[name]) / count * 1e3 for name in pids}
    verbs = {verb: per_call(verbs_before[verb], now, count) for verb, now in verbs_after.items()}
    return Run((count - 1) / (moments[-1] - moments[0]), cpu, verbs)


def per_call(before: tuple[float, float], now: tuple[float, float], pods: int) -> tuple[float, float]:
    """Milliseconds per call and calls per pod, from two readings of seconds and calls."""
    seconds, calls = now[0] - before[0], now[1] - before[1]
    return seconds / max(calls, 1) * 1e3, calls / pods


def check(kind: str, binds: Binds) -> None:
    """Raises SystemExit where a GPU was given twice, or a pod of ours has none: such a rate would mean nothing."""
    if kind != "with":
        return
    held = [uuid for pod in binds.places.values() for uuid in (pod.metadata.annotations or {}).get(ANN_GPUS, "").split(",")]
    if "" in held or len(held) != len(set(held)):
        raise SystemExit("a pod was bound without GPUs, or a GPU twice")


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def scrape(cluster: ClusterSession, port: int) -> dict[str, float]:
    """The extender's figures, by name with labels."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=asking_headers(cluster.parts.api))
    with urllib.request.urlopen(request, timeout=5) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def metric(cluster: ClusterSession, port: int, name: str) -> float:
    try:
        return scrape(cluster, port).get(name, 0.0)
    except OSError:
        return 0.0


def verb_sums(cluster: ClusterSession, port: int) -> dict[str, tuple[float, float]]:
    """Seconds and calls of each verb so far."""
    found = scrape(cluster, port) if port else {}
    name = "kompakt_extender_verb_seconds"
    verbs = ("filter", "prioritize", "bind") if port else ()
    return {v: (found.get(f'{name}_sum{{verb="{v}"}}', 0.0), found.get(f'{name}_count{{verb="{v}"}}', 0.0)) for v in verbs}


def report(nodes: int, count: int, runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """Prints the table; gives the medians."""
    print(f"{nodes} nodes, {count} pods, {len(runs['with'])} rounds; pods/s, median (lowest..highest); processor ms per pod")
    medians = {}
    for kind, each in runs.items():
        rates = sorted(one.rate for one in each)
        medians[kind] = statistics.median(rates)
        cpu = ", ".join(f"{name} {statistics.median(one.cpu[name] for one in each):.1f}" for name in each[0].cpu)
        print(f"  {kind:<8} {medians[kind]:6.1f} ({rates[0]:.1f}..{rates[-1]:.1f})   {cpu}")
    for verb in runs["with"][0].verbs:
        each_call, calls = (statistics.median(one.verbs[verb][at] for one in runs["with"]) for at in (0, 1))
        print(f"  {verb:<10} {each_call:7.2f} ms in the extender (mean of a run, median of runs), {calls:.2f} calls per pod")
    print(
        f"  with / without {medians['with'] / medians['without']:.2f}, with / default {medians['with'] / medians['default']:.2f}"
    )
    return medians


def measure(nodes: int, count: int, rounds: int, kinds: Sequence[str]) -> dict[str, list[Run]]:
    with (
        tempfile.TemporaryDirectory(prefix="kompakt-throughput-") as folder,
        fleet(Path(folder) / "run", nodes, LEASE, say) as cluster,
        closing(Plugins(cluster.kubeconfig)) as plugins,
    ):
        api = connect(str(cluster.kubeconfig))
        plugins.report_all()
        say("every node has its GPUTopology")
        runs: dict[str, list[Run]] = {kind: [] for kind in kinds}
        for number in range(rounds):
            for kind in kinds:
                runs[kind].append(run(cluster, api, plugins, kind, count))
                say(f"round {number + 1}, {kind}: {runs[kind][-1].rate:.1f} pods/s")
        return runs


def say(text: str) -> None:
    print(f"   {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if min(given.nodes) < 1 or given.pods < 2 or given.rounds < 1:
        parser.error("--nodes and --rounds must be at least 1, --pods at least 2")
    if given.pods > min(given.nodes):
        parser.error("--pods must not exceed the nodes: all pods must fit")
    for nodes in given.nodes:
        report(nodes, given.pods, measure(nodes, given.pods, given.rounds, KINDS))


if __name__ == "__main__":
    main()
