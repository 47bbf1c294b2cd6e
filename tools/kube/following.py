"""Following one TrainingJob to its end, and what can be seen of it from outside."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kompakt_core.contract import ENV_CUDA_VISIBLE, LABEL_JOB_NAME, bound_gpus, gpu_holders, gpu_lists
from tools.kube.kubectl import Kubectl, await_state

Say = Callable[[str], None]
ENDED = ("Succeeded", "Failed")


class JobFailed(RuntimeError):
    """A job of the demo did not end as it should; the text says what was seen."""


@dataclass(frozen=True, slots=True)
class FollowedWorker:
    """One pod of the job while it ran: the GPUs written on it, seen in its container, and held by kubelet's account."""

    pod: str
    node: str
    written: tuple[str, ...]
    seen: tuple[str, ...]
    held: frozenset[str]


def follow(
    kubectl: Kubectl, name: str, say: Say, seconds: float = 300, *, at_each_look: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Wait for the job's end and answer it; `at_each_look` is called each time that it has not ended yet.

    Raises:
        JobFailed: the job failed.
        TimeoutError: it did not end.
    """
    told: list[str] = []

    def ended() -> bool:
        job = kubectl.get("trainingjob", name)
        phase = str(job.get("status", {}).get("phase", ""))
        for line in (_scheduling(job), phase):
            if line and line not in told:
                told.append(line)
                say(f"{name}: {line}")
        if phase not in ENDED:
            at_each_look()
        return phase in ENDED

    await_state(ended, f"the end of job {name}", seconds)
    job: dict[str, Any] = kubectl.get("trainingjob", name)
    if job["status"]["phase"] != "Succeeded":
        raise JobFailed(f"job {name} failed: {json.dumps(job['status'].get('conditions', []))}")
    return job


def running_workers(kubectl: Kubectl, name: str) -> list[FollowedWorker]:
    """The workers with their GPUs from all three sources, once all run and kubelet has accounted for them; none before.

    CommandFailed while a container does not run.
    """
    pods = kubectl.items("pods", f"--selector={LABEL_JOB_NAME}={name}")
    if any(pod["status"].get("phase") != "Running" for pod in pods):
        return []
    found = [_worker(kubectl, pod) for pod in pods]
    return found if all(worker.held for worker in found) else []


def container_gpus(kubectl: Kubectl, pod: str) -> tuple[str, ...]:
    """What a process in the pod's container finds in its environment."""
    text = kubectl("exec", pod, "--", "printenv", ENV_CUDA_VISIBLE).strip()
    return gpu_lists.readable_uuids(text)


def held_gpus(kubectl: Kubectl, node: str, uid: str) -> frozenset[str]:
    """What kubelet's PodResources say that the pod holds, as the device plugin reports it."""
    held = gpu_holders.readable(kubectl.get("gputopology", node).get("status", {}).get("held")).held
    return frozenset(holder.uuid for holder in held if holder.pod_uid == uid)


def trainer_log(kubectl: Kubectl, name: str) -> str:
    """The log of the worker that speaks for the job (rank 0 prints accuracies)."""
    pods = kubectl.items("pods", f"--selector={LABEL_JOB_NAME}={name}")
    logs = [kubectl("logs", pod["metadata"]["name"]) for pod in pods]
    return max(logs, key=lambda log: log.count("accuracy"))


def accuracy(log: str) -> float:
    """The last test accuracy that the script printed, in percent.

    Raises:
        JobFailed: it printed none.
    """
    found = re.findall(r"test accuracy (\d+\.\d+) %", log)
    if not found:
        raise JobFailed("the training script printed no accuracy")
    return float(found[-1])


def _worker(kubectl: Kubectl, pod: dict[str, Any]) -> FollowedWorker:
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    written = bound_gpus.uuids(pod["metadata"]["annotations"])
    return FollowedWorker(name, node, written, container_gpus(kubectl, name), held_gpus(kubectl, node, pod["metadata"]["uid"]))


def _scheduling(job: dict[str, Any]) -> str:
    scheduling = job.get("status", {}).get("scheduling", {})
    plan = scheduling.get("plan") or {}
    if not plan:
        return str(scheduling.get("state", ""))
    nodes = sorted({pod["node"] for pod in plan.get("pods", [])})
    return f"{scheduling['state']}: {plan.get('level')} level, {int(plan.get('value', 0)) / 1000:.0f} GB/s, on {', '.join(nodes)}"
