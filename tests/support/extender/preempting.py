"""Gangs that run, are ended for others, and are urgent, as one leader sees them."""

from typing import Any

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from kompakt_core.contract.preempt_request import readable
from tests.support.extender.leader import Leader

PROTECTED = 300  # seconds that a job runs before it may be ended, unless it says otherwise


async def runs(leader: Leader, name: str, workers: int = 2, gpus: int = 4, priority: int = 0, attempt: int = 1) -> None:
    """The gang is placed, bound, and reported as running by the operator."""
    if attempt == 1:
        leader.world.add_gang(name, workers, gpus, priority=priority)
    await leader.settle()
    for index in range(workers):
        pod = f"{name}-worker-{index}-a{attempt}"
        node = leader.annotations(pod)[c.ANN_PLANNED_NODE]
        assert await leader.bind(pod, node) == ""
        leader.world.pods[pod]["status"]["phase"] = "Running"
        leader.world.add_pod(leader.world.pods[pod])
        leader.report(node)
    condition(leader, name, "Running", "True")
    await leader.settle()


async def bind_all(leader: Leader, job: str, workers: int, attempt: int = 1) -> None:
    """kube-scheduler binds the gang's first workers where they are planned, and the nodes report so."""
    for index in range(workers):
        pod = f"{job}-worker-{index}-a{attempt}"
        node = leader.annotations(pod)[c.ANN_PLANNED_NODE]
        assert await leader.bind(pod, node) == ""
        leader.report(node)


def condition(leader: Leader, name: str, kind: str, status: str) -> None:
    """The operator writes one; those of the planner stay."""
    found = leader.world.jobs[name]
    others = [one for one in found["status"].get("conditions", ()) if one["type"] != kind]
    found["status"]["conditions"] = [
        *others,
        {"type": kind, "status": status, "lastTransitionTime": timestamps.encode(leader.now)},
    ]
    leader.world.put("jobs", name, found)


def ended(leader: Leader, name: str, workers: int = 2, attempt: int = 1) -> None:
    """The operator ends the gang as asked: the next attempt's number is written, its pods are gone."""
    leader.world.jobs[name]["status"]["attempt"] = attempt + 1
    condition(leader, name, "Running", "False")
    for index in range(workers):
        leader.world.delete_pod(f"{name}-worker-{index}-a{attempt}")
    for node in leader.world.nodes:
        leader.world.report(node)


def touch(leader: Leader, name: str) -> None:
    """Somebody writes the job."""
    leader.world.put("jobs", name, leader.world.jobs[name])


def request(leader: Leader, name: str) -> Any:
    return readable(leader.scheduling(name).get("preempt"))


def urgent(leader: Leader, name: str = "urgent", workers: int = 2, gpus: int = 4, priority: int = 1000, **more: Any) -> None:
    leader.world.add_gang(name, workers, gpus, priority=priority, **more)


def seats(leader: Leader, name: str) -> set[str]:
    return {gpu for seat in leader.seats(name) for gpu in seat.gpus}
