"""Checks of what waits: pods that ask for our GPUs, and jobs that do not go on. Pure: a reading in, findings out."""

from collections.abc import Iterator
from typing import Any, Final

from kompakt_cli.doctor_nodes import resource
from kompakt_cli.doctor_reading import ClusterReading, Item, by_claims, only_reports, readable
from kompakt_cli.finding import Finding, ok, some, warning
from kompakt_core import contract
from kompakt_core.contract import gpu_claim, timestamps
from kompakt_core.contract.conditions import Type, read_conditions

PATIENCE_SECONDS: Final = 300.0


def pods(reading: ClusterReading) -> Iterator[Finding]:
    """Pods without a node: those for kompakt's scheduler, and those that ask for our GPUs and name another one."""
    if only_reports(reading):
        yield ok("pods", "others place them")
        return
    waiting = [pod for pod in readable(reading.pods) if _waits(pod)]
    ours = [pod for pod in waiting if _is_ours(pod)]
    name = resource(reading)
    others = [pod for pod in waiting if pod not in ours and _asks(pod, name) and not by_claims(reading)]
    late = [pod for pod in ours if _age(pod, reading.now) > PATIENCE_SECONDS]
    if others:
        said = f"ask for {name} and name another scheduler: {some(map(_full, others))}"
        yield warning("pods", said, f"make them anew with spec.schedulerName: {contract.SCHEDULER_NAME}")
    if late:
        first = late[0]["metadata"]
        cure = f"kompakt explain pod {first['name']} -n {first['namespace']} says why; kompakt what-if --gpus N what would fit"
        yield warning("pods", f"wait for more than {PATIENCE_SECONDS / 60:.0f} min: {some(map(_full, late))}", cure)
    if not (others or late):
        yield ok("pods", f"{len(ours)} wait, none for more than {PATIENCE_SECONDS / 60:.0f} min")


def jobs(reading: ClusterReading) -> Iterator[Finding]:
    """Jobs that do not go on by themselves, and are not over."""
    every = readable(reading.jobs)
    found = {_full(job): read_conditions((job.get("status") or {}).get("conditions")) for job in every}
    stalled = {name: of for name, of in found.items() if _true(of, Type.STALLED) and not _true(of, Type.FAILED)}
    unseen = [_full(job) for job in every if _unseen(job, reading.now)]
    for name, conditions in stalled.items():
        why = conditions[Type.STALLED]
        where, _, job = name.partition("/")
        yield warning(
            "jobs", f"{name}: {why.reason}: {why.message}", f"kubectl describe trainingjob {job} -n {where}; docs/trainingjob.md"
        )
    if unseen:
        lease = f"kubectl get lease {contract.OPERATOR_LEASE} -n {reading.release}"
        cure = f"{lease} shows whether an operator is active; see also spec.managedBy"
        yield warning("jobs", f"no operator has seen {some(unseen)}", cure)
    if not (stalled or unseen):
        yield ok("jobs", f"{len(every)} TrainingJobs, none stalled")


def _unseen(job: Item, now: float) -> bool:
    return not (job.get("status") or {}).get("phase") and _age(job, now) > PATIENCE_SECONDS


def _true(conditions: dict[str, Any], kind: str) -> bool:
    return kind in conditions and bool(conditions[kind].true)


def _is_ours(pod: Item) -> bool:
    by_claim = gpu_claim.is_asked(pod["metadata"].get("annotations") or {})
    return by_claim or pod["spec"].get("schedulerName") == contract.SCHEDULER_NAME


def _waits(pod: Item) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not (ended or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))


def _asks(pod: Item, name: str) -> bool:
    return any(name in ((one.get("resources") or {}).get("limits") or {}) for one in pod["spec"]["containers"])


def _age(item: Item, now: float) -> float:
    made = timestamps.seconds(item["metadata"].get("creationTimestamp"))
    return now - made if made is not None else 0.0


def _full(item: Item) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
