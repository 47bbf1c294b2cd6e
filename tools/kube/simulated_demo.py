"""The demo where real nodes cannot run: the same decisions on simulated nodes, without containers."""

import json
import socket
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from kompakt_client.transport import connect
from kompakt_core.contract import LABEL_JOB_NAME, bound_gpus
from kompakt_core.topology.wire import graph_from_spec
from tools.kube import binaries, closing, control_plane, following, kwok, scatter, simulated, stack
from tools.kube.comparison import compare
from tools.kube.control_plane import ControlPlane
from tools.kube.images import ROOT, TRAINER_FOLDER
from tools.kube.kubectl import Kubectl
from tools.kube.parts import Parts
from tools.kube.programs import SIMULATED
from tools.kube.scatter import Stage
from tools.kube.simulated import SimulatedMachine
from tools.kube.steps import StepPrinter

RUN_SECONDS = "5"  # how long a simulated worker "runs"
NOT_SHOWN = "containers, images and Helm's workloads, GPUs seen inside a pod, training, compression, accuracy"


def run(name: str, reason: str) -> None:
    """Run the sequence on simulated nodes and leave the cluster up; `reason` says why not on real ones.

    Raises:
        StartFailed, CommandFailed, TimeoutError, JobFailed: a step failed; the text says which and why.
    """
    steps = StepPrinter()
    print(f"No real nodes: {reason}.\nThe same sequence follows on simulated nodes. Not shown: {NOT_SHOWN}.", flush=True)
    with steps.step("programs (12 to 16 minutes the first time, seconds afterwards)"):
        find = binaries.find_all([*SIMULATED, "helm"], steps.say).__getitem__
    with steps.step("a control plane and five simulated nodes"):
        plane = simulated.start(_fresh_folder(name), find, say=steps.say)
        kwok.add_nodes(connect(plane.kubeconfig), _nodes())
        kubectl = Kubectl(find("kubectl"), plane.kubeconfig)
    with steps.step("operator, scheduler with extender, and the device plugins' stand-in, with the chart's rights"):
        _start_parts(plane, Parts(plane, find))
        steps.show(kubectl("get", "gputopologies"))
    with steps.step("small pods fill two machines, then some end: the free GPUs are scattered"):
        graphs = {node: graph_from_spec(kubectl.get("gputopology", node)["spec"]) for node in stack.REAL_NODES}
        stage = scatter.scatter(kubectl, graphs, "simulated")
        for node, free in stage.free.items():
            steps.say(f"{node}: GPUs {', '.join(map(str, free))} are free")
    with steps.step("kubectl apply -f examples/digits/job.yaml (its workers end after 5 s)"):
        job = _train(kubectl, ROOT / TRAINER_FOLDER / "job.yaml", steps)
    _tables(stage, job, steps)
    print(f"\nThe cluster stays up. Look around:  export KUBECONFIG={plane.kubeconfig}  (kubectl: {kubectl.program})")
    print("Remove it all:  make demo-down", flush=True)


def _fresh_folder(name: str) -> Path:
    folder = control_plane.run_folder(name)
    control_plane.remove_leftovers(folder, lambda text: None)
    return folder


def _nodes() -> list[dict[str, Any]]:
    """Two nodes that stand for the real ones, and three that ordinary pods keep away from."""
    named = zip(stack.REAL_NODES, stack.MACHINES, strict=True)
    return [simulated_node(SimulatedMachine(name, machine, 8)) for name, machine in named] + [
        stack.kwok_node(machine) for machine in stack.SIMULATED
    ]


def simulated_node(machine: SimulatedMachine) -> dict[str, Any]:
    return kwok.node(machine.name, machine.gpus, machine.machine, dict(machine.labels))


def _start_parts(plane: ControlPlane, parts: Parts) -> None:
    parts.install()
    plane.start_component(parts.simulated_plugins())
    # One pair only, so it may go by this machine's own name; others would need a namespace to have one.
    _, extender, scheduler = parts.pair(socket.gethostname())
    for component in (extender, scheduler, parts.operator()):
        plane.start_component(component)


def _train(kubectl: Kubectl, path: Path, steps: StepPrinter) -> dict[str, Any]:
    """Apply a manifest whose pods end by themselves after a while."""
    job = yaml.safe_load(path.read_text())
    for role in job["spec"]["roles"]:
        annotations = role["template"].setdefault("metadata", {}).setdefault("annotations", {})
        annotations[kwok.SECONDS_ANNOTATION] = RUN_SECONDS
    kubectl.apply(json.dumps(job))
    return following.follow(kubectl, job["metadata"]["name"], steps.say)


def _tables(stage: Stage, job: dict[str, Any], steps: StepPrinter) -> None:
    pods = stage.kubectl.items("pods", f"--selector={LABEL_JOB_NAME}={job['metadata']['name']}")
    places = []
    for pod in pods:
        node = pod["spec"]["nodeName"]
        gpus = stage.indices(node, bound_gpus.uuids(pod["metadata"]["annotations"]))
        places.append(compare(node, stage.graphs[node], gpus, stage.free[node]))
    console = Console(width=None if Console().is_terminal else 100)
    for table in (closing.places_table(places), closing.times_table(steps.taken)):
        console.print()
        console.print(table)
    print(f"\nNot shown on simulated nodes: {NOT_SHOWN}.")
