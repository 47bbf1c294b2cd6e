"""How long from applying a TrainingJob, or a Job as a gang, until all its pods are bound, beside a plain Job.

    python -m benchmarks.path                       # brings up a cluster of simulated nodes for itself, without root
    python -m benchmarks.path --kubeconfig FILE     # a running cluster with kompakt installed and GPUs free
    python -m benchmarks.path --kueue               # and TrainingJobs and plain Jobs in a queue of Kueue, in a cluster of its own

Jobs run one after the other, one of each kind in turn, with the same number of pods on the same nodes; the next begins
when the pods of the last are gone. Times are read on this machine's clock: from sending the request until the watch shows
the last pod with a node. The plain Job's pods are the default scheduler's and ask for no GPUs, so they cost nothing of
kompakt's.
"""

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubernetes import client, config

from benchmarks.pod_times import BOUND, CREATED, RELEASED, PodTimes, watching
from kompakt_core.contract import (
    ANN_GANG_SIZE,
    ANN_GPUS,
    ANN_PATTERN,
    ANN_SENSITIVITY,
    API_VERSION,
    GROUP,
    JOB_KIND,
    JOB_PLURAL,
    LABEL_GANG,
    LABEL_JOB_NAME,
    RESOURCE,
    VERSION,
)
from tests.support.cluster import kueue
from tools.kube import simulated
from tools.kube.binaries import find_all
from tools.kube.processes import launch_tied
from tools.kube.programs import SIMULATED
from tools.kube.session import ClusterSession

PATIENCE = 60.0  # seconds after which a job counts as lost
NODE_GPUS = 8  # of the simulated nodes
PLAIN_LABEL = "batch.kubernetes.io/job-name"
GANG_JOB = "Job as a gang"
IN_QUEUE: Final = {kueue.QUEUE_LABEL: kueue.QUEUE}
QUEUED, QUEUED_PLAIN = "TrainingJob in a queue", "plain Job in a queue"


@dataclass(frozen=True, slots=True)
class Shape:
    """What one job asks for."""

    workers: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from sending the request until all pods were created, released from their gates, bound."""

    created: float
    released: float
    bound: float


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job: how it is made and removed."""

    name: str
    prefix: str  # of the jobs' names
    create: Callable[[str], object]
    delete: Callable[[str], object]


def training_jobs(
    api: client.ApiClient, namespace: str, shape: Shape, *, suspend: bool = False, labels: Mapping[str, str] | None = None
) -> Kind:
    custom = client.CustomObjectsApi(api)
    container = {"name": "trainer", "image": "simulated", "resources": {"requests": {"cpu": "10m"}}}
    role = {"name": "worker", "replicas": shape.workers, "gpusPerReplica": shape.gpus}
    spec = {
        "suspend": suspend,
        "roles": [{**role, "template": {"spec": {"containers": [container]}}}],
        "communication": {"pattern": "Ring", "bandwidthSensitivity": "High"},
        "placement": {"consolidation": {"mode": "NoWait"}},  # the way is timed, not the wait for a better level
    }

    def create(name: str) -> object:
        body = {"apiVersion": API_VERSION, "kind": JOB_KIND, "metadata": {"name": name, "labels": labels or {}}, "spec": spec}
        return custom.create_namespaced_custom_object(GROUP, VERSION, namespace, JOB_PLURAL, body)

    def delete(name: str) -> object:
        return custom.delete_namespaced_custom_object(GROUP, VERSION, namespace, JOB_PLURAL, name, grace_period_seconds=0)

    return Kind(QUEUED if labels else JOB_KIND, "queued-gang" if labels else "gang", create, delete)


def queued_training_jobs(api: client.ApiClient, namespace: str, shape: Shape) -> Kind:
    return training_jobs(api, namespace, shape, labels=IN_QUEUE)


def plain_jobs(api: client.ApiClient, namespace: str, shape: Shape) -> Kind:
    return _jobs(api, namespace, shape, "plain Job", "plain", 0)


def queued_plain_jobs(api: client.ApiClient, namespace: str, shape: Shape) -> Kind:
    return _jobs(api, namespace, shape, QUEUED_PLAIN, "queued-plain", 0, IN_QUEUE)


def gangs_of_jobs(api: client.ApiClient, namespace: str, shape: Shape) -> Kind:
    """Jobs whose pods say that they are a gang."""
    return _jobs(api, namespace, shape, GANG_JOB, "others", shape.gpus)


def _jobs(
    api: client.ApiClient,
    namespace: str,
    shape: Shape,
    kind: str,
    prefix: str,
    gpus: int,
    labels: Mapping[str, str] | None = None,
) -> Kind:
    batch = client.BatchV1Api(api)
    limits = {"limits": {RESOURCE: str(gpus)}} if gpus else {}
    container = {"name": "trainer", "image": "simulated", "resources": {"requests": {"cpu": "10m"}, **limits}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    counts = {"parallelism": shape.workers, "completions": shape.workers}
    notes = {ANN_GANG_SIZE: str(shape.workers), ANN_PATTERN: "Ring", ANN_SENSITIVITY: "High"}

    def create(name: str) -> object:
        metadata = {"labels": {LABEL_GANG: name}, "annotations": notes} if gpus else {}
        spec = {**counts, "template": {"metadata": metadata, "spec": pod}}
        return batch.create_namespaced_job(namespace, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})

    def delete(name: str) -> object:
        return batch.delete_namespaced_job(name, namespace, propagation_policy="Background", grace_period_seconds=0)

    return Kind(kind, prefix, create, delete)


KINDS: Final = (training_jobs, gangs_of_jobs, plain_jobs)


def measure(times: PodTimes, kind: Kind, pods: int, job: str) -> Timing:
    """One job from request to bound, then its removal. Raises SystemExit when it is lost."""
    began = time.monotonic()
    kind.create(job)
    if not times.wait_until_bound(job, pods, PATIENCE):
        raise SystemExit(f"{kind.name} {job}: not all {pods} pods are bound after {PATIENCE:.0f} s; seen: {times.seen_of(job)}")
    created, released, bound = ((times.last(job, pods, moment) or began) - began for moment in (CREATED, RELEASED, BOUND))
    kind.delete(job)
    if not times.wait_until_gone(job, PATIENCE):
        raise SystemExit(f"{kind.name} {job}: its pods are not gone after {PATIENCE:.0f} s; seen: {times.seen_of(job)}")
    return Timing(created, released, bound)


def with_queues(cluster: ClusterSession, jobs: int, shape: Shape) -> dict[str, list[Timing]]:
    """As `run`, with jobs in a queue beside the others."""
    return run(
        cluster.api,
        jobs,
        shape,
        (*KINDS, queued_training_jobs, queued_plain_jobs),
        lambda namespace: kueue.queue(cluster, namespace, jobs * shape.workers * shape.gpus),
    )


@contextmanager
def own_cluster(nodes: int, say: Callable[[str], None]) -> Iterator[client.ApiClient]:
    """A client of a cluster of its own; gone afterwards."""
    with whole_cluster(nodes, say) as cluster:
        yield cluster.api


@contextmanager
def simulated_cluster(nodes: int, say: Callable[[str], None]) -> Iterator[ClusterSession]:
    """A control plane and simulated nodes of eight GPUs; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kompakt-path-") as folder:
        find = find_all([*SIMULATED, "helm"], say).__getitem__
        cluster = ClusterSession(
            simulated.start(Path(folder) / "run", find, simulated.machines(nodes), launch=launch_tied, say=say), find
        )
        try:
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def whole_cluster(nodes: int, say: Callable[[str], None], with_kueue: bool = False) -> Iterator[ClusterSession]:
    """The same with all of kompakt's processes."""
    with simulated_cluster(nodes, say) as cluster:
        if with_kueue:
            kueue.install(cluster, "batch/job")
        cluster.parts.install({"kueue.enabled": str(with_kueue).lower()})
        cluster.start(cluster.parts.simulated_plugins())
        cluster.start_pair("scheduler-0")
        cluster.start(cluster.parts.operator("operator-0", f"--kueue={str(with_kueue).lower()}"))
        yield cluster


@contextmanager
def running_cluster(kubeconfig: Path) -> Iterator[client.ApiClient]:
    api = config.new_client_from_config(str(kubeconfig))
    try:
        yield api
    finally:
        api.close()


@contextmanager
def own_namespace(api: client.ApiClient) -> Iterator[str]:
    """A namespace for this run, deleted afterwards."""
    core, name = client.CoreV1Api(api), f"path-{uuid.uuid4().hex[:6]}"
    core.create_namespace({"metadata": {"name": name}})
    try:
        for _ in range(200):
            if core.list_namespaced_service_account(name).items:
                break
            time.sleep(0.1)
        yield name
    finally:
        core.delete_namespace(name)


def run(
    api: client.ApiClient,
    jobs: int,
    shape: Shape,
    makes: Sequence[Callable[[client.ApiClient, str, Shape], Kind]] = KINDS,
    prepare: Callable[[str], object] = lambda namespace: None,
) -> dict[str, list[Timing]]:
    """The timings of all kinds in turn, by kind. One job of each goes first and does not count. `prepare`: the namespace."""
    with own_namespace(api) as namespace, watching(api, namespace, (LABEL_JOB_NAME, PLAIN_LABEL)) as times:
        prepare(namespace)
        kinds = [make(api, namespace, shape) for make in makes]
        timings: dict[str, list[Timing]] = {kind.name: [] for kind in kinds}
        for number in range(jobs + 1):
            for kind in kinds:
                timing = measure(times, kind, shape.workers, f"{kind.prefix}-{number}")
                if number > 0:
                    timings[kind.name].append(timing)
        return timings


def burst(api: client.ApiClient, jobs: int, shape: Shape) -> Timing:
    """The last of many TrainingJobs sent at once, counted from the first request.

    Raises SystemExit when one is lost, or when two pods hold one GPU.
    """
    with own_namespace(api) as namespace, watching(api, namespace, (LABEL_JOB_NAME,)) as times:
        kind, names = training_jobs(api, namespace, shape), [f"burst-{number}" for number in range(jobs)]
        began = time.monotonic()
        for name in names:
            kind.create(name)
        if lost := [name for name in names if not times.wait_until_bound(name, shape.workers, PATIENCE)]:
            raise SystemExit(f"{len(lost)} of {jobs} jobs are not bound after {PATIENCE:.0f} s; first: {times.seen_of(lost[0])}")
        ends = [max(times.last(name, shape.workers, moment) or began for name in names) for moment in (CREATED, RELEASED, BOUND)]
        pods = client.CoreV1Api(api).list_namespaced_pod(namespace).items
        check_gpus([pod.metadata.annotations for pod in pods], jobs * shape.workers * shape.gpus)
        for name in names:
            kind.delete(name)
        if left := [name for name in names if not times.wait_until_gone(name, PATIENCE)]:
            raise SystemExit(f"the pods of {len(left)} jobs are not gone after {PATIENCE:.0f} s; first: {times.seen_of(left[0])}")
    return Timing(*(end - began for end in ends))


def check_gpus(annotations: Iterable[Mapping[str, str]], wanted: int) -> None:
    """Raises SystemExit unless the pods of these annotations hold that many GPUs, each once."""
    held = [uuid for notes in annotations for uuid in notes[ANN_GPUS].split(",")]
    if len(held) != wanted or len(set(held)) != wanted:
        raise SystemExit(f"{len(held)} GPUs are written on the pods, {len(set(held))} different ones; expected {wanted}")


def line(name: str, times: Sequence[float]) -> str:
    ordered = sorted(times)
    p90 = ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]
    return f"{name:<46} p50 {statistics.median(ordered):6.3f} s   p90 {p90:6.3f} s   max {ordered[-1]:6.3f} s"


def report(timings: Mapping[str, Sequence[Timing]]) -> None:
    for kind, measured in timings.items():
        print(line(f"{kind}: apply -> all pods bound", [timing.bound for timing in measured]))
    for kind, beside in ((GANG_JOB, JOB_KIND), (QUEUED, JOB_KIND), (QUEUED, QUEUED_PLAIN)):
        if kind in timings:
            one, other = (statistics.median(timing.bound for timing in timings[name]) for name in (kind, beside))
            print(f"p50 of a {kind} / of a {beside}: {one / other:.2f}")
    parts = timings[JOB_KIND]
    print("of which, for a TrainingJob:")
    print(line("  apply -> all pods created (operator)", [timing.created for timing in parts]))
    print(line("  created -> all gates gone (planner)", [timing.released - timing.created for timing in parts]))
    print(line("  gates gone -> all bound (scheduler, extender)", [timing.bound - timing.released for timing in parts]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, help="of a running cluster; default: bring one up")
    parser.add_argument("--jobs", type=int, default=20, help="jobs of each kind")
    parser.add_argument("--workers", type=int, default=2, help="pods of each job")
    parser.add_argument("--gpus", type=int, default=4, help="GPUs of each pod of a TrainingJob")
    parser.add_argument("--burst", type=int, default=0, help="afterwards so many TrainingJobs at once; all must fit")
    parser.add_argument("--kueue", action="store_true", help="jobs in a queue of Kueue too, in a cluster of their own")
    given = parser.parse_args()
    if given.kueue and (given.kubeconfig or given.burst):
        parser.error("--kueue brings up a cluster of its own, without --kubeconfig and --burst")
    if given.jobs < 1 or given.workers < 1 or given.gpus < 1:
        parser.error("--jobs, --workers and --gpus must be at least 1")
    shape = Shape(given.workers, given.gpus)
    if given.kueue:
        with whole_cluster(nodes_for(0, shape), say, with_kueue=True) as cluster:
            report(with_queues(cluster, given.jobs, shape))
        return
    with running_cluster(given.kubeconfig) if given.kubeconfig else own_cluster(nodes_for(given.burst, shape), say) as api:
        timings = run(api, given.jobs, shape)
        last = burst(api, given.burst, shape) if given.burst else None
    print(f"{given.jobs} jobs of each kind, {given.workers} pods each, {given.gpus} GPUs per pod of a TrainingJob")
    report(timings)
    if last is not None:
        print(
            f"{given.burst} TrainingJobs at once: none lost, each GPU held once; seconds after the first request until all were"
        )
        print(f"  created {last.created:.1f}, released {last.released:.1f}, bound {last.bound:.1f}")


def say(text: str) -> None:
    print(f"   {text}", flush=True)


def nodes_for(jobs: int, shape: Shape) -> int:
    """Simulated nodes of eight GPUs that hold so many jobs, at least two. Raises SystemExit when a pod is larger than a node."""
    if shape.gpus > NODE_GPUS:
        raise SystemExit(f"--gpus {shape.gpus}: the simulated nodes have {NODE_GPUS} GPUs each")
    pods_per_node = NODE_GPUS // shape.gpus
    return max(2, -(-max(jobs, 1) * shape.workers // pods_per_node))


if __name__ == "__main__":
    main()
