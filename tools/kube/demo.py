"""The whole path on a cluster of its own: two real nodes, the chart, small pods, a gang, compressed training, a table."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kompakt_core.contract import LABEL_MACHINE, bound_gpus
from kompakt_core.topology.wire import graph_from_spec
from tools.kube import closing, elsewhere, following, install, scatter, stack
from tools.kube.closing import DemoRun, MachinePicture
from tools.kube.command import output
from tools.kube.comparison import Comparison, compare
from tools.kube.following import FollowedWorker, JobFailed, running_workers
from tools.kube.images import ROOT, TRAINER_FOLDER
from tools.kube.kubectl import Kubectl
from tools.kube.real import RealCluster
from tools.kube.scatter import Stage
from tools.kube.steps import StepPrinter

TRAINER: Final = "localhost/kompakt-digits:1"  # as the example's manifests name it
JOBS: Final = ("digits", "digits-plain")


def run(name: str) -> None:
    """Run the demo on a cluster of that name and leave it up.

    Raises:
        host.CannotRun: real nodes cannot run here.
        CommandFailed, StartFailed, TimeoutError, JobFailed, RuntimeError: a step failed; the text says which and why.
    """
    steps = StepPrinter()
    with steps.step("programs and images (10 to 20 minutes on two cores the first time, seconds afterwards)"):
        prepared = stack.prepare(steps.say)
    with steps.step("a control plane, two real nodes, three simulated ones"):
        cluster = stack.start(name, stack.MACHINES, stack.SIMULATED, prepared, steps.say)
        kubectl = stack.kubectl_of(cluster)
        steps.show(kubectl("get", "nodes"))
    with steps.step("helm install charts/kompakt; the device plugins report link graphs and GPUs"):
        install_kompakt(cluster, kubectl, prepared)
        steps.show(kubectl("get", "gputopologies"))
    show(cluster.kubeconfig, kubectl, stack.REAL_NODES, prepared, steps)


def run_elsewhere(name: str) -> None:
    """Run the demo on the cluster that KOMPAKT_CLUSTER chose and leave it as it is then.

    Raises:
        host.CannotRun: it cannot be used.
        CommandFailed, TimeoutError, JobFailed, RuntimeError: a step failed; the text says which and why.
    """
    steps = StepPrinter()
    with steps.step("the cluster, with two nodes that play machines"):
        cluster = elsewhere.brought(name, steps.say)
        steps.show(cluster.kubectl("get", "nodes", f"--label-columns={LABEL_MACHINE}"))
    with steps.step("helm install charts/kompakt; the device plugins report link graphs and GPUs"):
        install.helm_install(cluster, cluster.images)
        install.await_gpus(cluster.kubectl, dict.fromkeys(cluster.machines, scatter.GPUS))
        steps.show(cluster.kubectl("get", "gputopologies"))
    show(cluster.kubeconfig, cluster.kubectl, cluster.machines, cluster.images, steps)


def show(kubeconfig: Path, kubectl: Kubectl, nodes: Sequence[str], prepared: stack.Images, steps: StepPrinter) -> None:
    """What is shown once kompakt is installed: small pods on `nodes`, the example with and without compression, the tables."""
    with steps.step("small pods fill both machines, then some end: the free GPUs are scattered"):
        graphs = {node: graph_from_spec(kubectl.get("gputopology", node)["spec"]) for node in nodes}
        stage = scatter.scatter(kubectl, graphs, prepared.names["pause"])
        for node, free in stage.free.items():
            steps.say(f"{node}: GPUs {', '.join(map(str, free))} are free")
    with steps.step("kubectl apply -f examples/digits/job.yaml"):
        compressed, workers = train(stage, "job.yaml", steps, prepared.names["kompakt-digits"])
        check_workers(workers, steps)
    with steps.step("kubectl apply -f examples/digits/job-plain.yaml, to compare with"):
        plain, _ = train(stage, "job-plain.yaml", steps, prepared.names["kompakt-digits"])
        steps.show(kubectl("get", "trainingjobs"))
    closing.show(machines(stage, workers), comparisons(stage, workers), compressed, plain, steps.taken)
    print(f"\nThe cluster stays up. Look around:  export KUBECONFIG={kubeconfig}  (kubectl: {kubectl.program})")
    print("Remove it all:  make demo-down", flush=True)


def remove_elsewhere(name: str) -> None:
    """Remove what the demo left: kind's cluster; or, of a cluster that was there before, jobs, small pods and the release.

    The definitions stay, as with every uninstall.

    Raises:
        host.CannotRun: the cluster cannot be used.
        CommandFailed: something could not be removed.
    """
    if elsewhere.chosen() == elsewhere.KIND:
        elsewhere.check_kind()
        output(["kind", "delete", "cluster", "--name", name])
        return
    cluster = elsewhere.reached()
    cluster.kubectl("delete", "trainingjobs", *JOBS, "--ignore-not-found", "--timeout=60s")
    cluster.kubectl("delete", "pods", f"--selector={scatter.LABEL}", "--now")
    install.helm_uninstall(cluster)


def install_kompakt(cluster: RealCluster, kubectl: Kubectl, prepared: stack.Images) -> None:
    """The chart on the real nodes, the stand-in plugin for the simulated ones, and all GPUs reported."""
    install.helm_install(cluster, prepared)
    install.start_simulated_plugins(cluster)
    install.await_gpus(kubectl, dict.fromkeys(stack.REAL_NODES, scatter.GPUS))


def train(stage: Stage, manifest: str, steps: StepPrinter, image: str = TRAINER) -> tuple[DemoRun, list[FollowedWorker]]:
    """Apply one of the example's manifests and follow it to its end; answers its workers as they were while they ran."""
    text = (ROOT / TRAINER_FOLDER / manifest).read_text().replace(TRAINER, image)
    began = time.monotonic()
    name = stage.kubectl("apply", "--filename=-", "--output=name", stdin=text).strip().rpartition("/")[2]
    workers: list[FollowedWorker] = []

    def look() -> None:  # from the first moment: on a busy machine the job's phase says Running when training is nearly over
        workers.extend([] if workers else running_workers(stage.kubectl, name))

    job = following.follow(stage.kubectl, name, steps.say, at_each_look=look)
    steps.say(f"{name}: {time.monotonic() - began:.0f} s from kubectl apply to its end")
    return DemoRun(job, following.accuracy(following.trainer_log(stage.kubectl, name))), workers


def check_workers(workers: list[FollowedWorker], steps: StepPrinter) -> None:
    """The GPUs written on each pod are those its container sees and kubelet accounts for; say so.

    Raises:
        JobFailed: they differ, or no worker was ever seen running.
    """
    if not workers:
        raise JobFailed("no worker was seen while it ran: nothing says which GPUs they had")
    for worker in workers:
        if worker.seen != worker.written or worker.held != set(worker.written):
            raise JobFailed(f"{worker.pod}: written {worker.written}, seen inside {worker.seen}, held {sorted(worker.held)}")
        steps.say(f"{worker.pod} on {worker.node}: annotation, container and PodResources agree on {', '.join(worker.seen)}")


def comparisons(stage: Stage, workers: list[FollowedWorker]) -> list[Comparison]:
    return [compare(w.node, stage.graphs[w.node], stage.indices(w.node, w.seen), stage.free[w.node]) for w in workers]


def machines(stage: Stage, workers: list[FollowedWorker]) -> list[MachinePicture]:
    """Who held which GPU of the real nodes while the job ran."""
    small: dict[str, dict[int, str]] = {node: {} for node in stage.graphs}
    for pod in stage.kubectl.items("pods", f"--selector={scatter.LABEL}"):
        small[pod["spec"]["nodeName"]] |= dict.fromkeys(bound_gpus.indices(pod["metadata"]["annotations"]), "small pods")
    for worker in workers:
        for index in stage.indices(worker.node, worker.seen):
            small[worker.node][index] = worker.pod
    return [MachinePicture(node, graph, small[node]) for node, graph in stage.graphs.items()]
