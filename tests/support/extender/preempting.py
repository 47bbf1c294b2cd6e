"""Gangs that run, are ended for others, and are urgent, as one office sees them."""

from typing import Any

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from kompakt_core.contract.preempt_request import readable
from tests.support.extender.office import Office, on_nodes

PROTECTED = 300  # seconds that a job runs before it may be ended, unless it says otherwise


async def runs(office: Office, name: str, workers: int = 2, gpus: int = 4, priority: int = 0, attempt: int = 1) -> None:
    """The gang is placed, bound, and reported as running by the operator."""
    if attempt == 1:
        office.world.add_gang(name, workers, gpus, priority=priority)
    await office.settle()
    for index in range(workers):
        pod = f"{name}-worker-{index}-a{attempt}"
        node = office.annotations(pod)[c.ANN_PLANNED_NODE]
        assert await office.bind(pod, node) == ""
        office.world.pods[pod]["status"]["phase"] = "Running"
        office.world.add_pod(office.world.pods[pod])
        office.world.report(node)
        office.see()
    condition(office, name, "Running", "True")
    await office.settle()


async def full_node(ran: float = PROTECTED) -> Office:
    """The gang `low` of priority 0 has had all GPUs of the only node for so many seconds."""
    office = on_nodes(1)
    await runs(office, "low")
    office.wait(ran)
    return office


async def urgent_on_full_node() -> Office:
    """An urgent gang has come to it, and was decided about."""
    office = await full_node()
    urgent(office)
    await office.settle()
    return office


async def bind_all(office: Office, job: str, workers: int, attempt: int = 1) -> None:
    """kube-scheduler binds the gang's first workers where they are planned, and the nodes report so."""
    for index in range(workers):
        pod = f"{job}-worker-{index}-a{attempt}"
        node = office.annotations(pod)[c.ANN_PLANNED_NODE]
        assert await office.bind(pod, node) == ""
        office.world.report(node)
        office.see()


def condition(office: Office, name: str, kind: str, status: str) -> None:
    """The operator writes one; those of the planner stay."""
    found = office.world.jobs[name]
    others = [one for one in found["status"].get("conditions", ()) if one["type"] != kind]
    found["status"]["conditions"] = [
        *others,
        {"type": kind, "status": status, "lastTransitionTime": timestamps.encode(office.now)},
    ]
    office.world.put("jobs", name, found)


def ended(office: Office, name: str, workers: int = 2, attempt: int = 1) -> None:
    """The operator ends the gang as asked: the next attempt's number is written, its pods are gone."""
    office.world.jobs[name]["status"]["attempt"] = attempt + 1
    condition(office, name, "Running", "False")
    for index in range(workers):
        office.world.delete_pod(f"{name}-worker-{index}-a{attempt}")
    for node in office.world.nodes:
        office.world.report(node)


def touch(office: Office, name: str) -> None:
    """Somebody writes the job."""
    office.world.put("jobs", name, office.world.jobs[name])


def request(office: Office, name: str) -> Any:
    return readable(office.scheduling(name).get("preempt"))


def conditions(office: Office, name: str) -> dict[str, str]:
    return {one["type"]: one["status"] for one in office.world.jobs[name]["status"]["conditions"]}


def urgent(office: Office, name: str = "urgent", workers: int = 2, gpus: int = 4, priority: int = 1000, **more: Any) -> None:
    office.world.add_gang(name, workers, gpus, priority=priority, **more)


def seats(office: Office, name: str) -> set[str]:
    return {gpu for seat in office.scheduling(name)["plan"]["pods"] for gpu in seat["gpus"]}
