"""Why a job waits, or why it is where it is: read-only, from the caches."""

from datetime import datetime
from typing import Any

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.choose import choose
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.fit import node_refusal
from kompakt_core.placement.model import Gang, NodeState, Refusal
from kompakt_extender.gangs import gang_of, members
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import Ledger
from kompakt_extender.record import State, written
from kompakt_extender.views import JobView


def explain_job(ledger: Ledger, jobs: Jobs, namespace: str, name: str, now: datetime) -> dict[str, Any] | None:
    """What is known of a job: its record, its pods, and for a waiting gang what each node says. None: no such job."""
    job = next((one for one in jobs.views.values() if (one.namespace, one.name) == (namespace, name)), None)
    if job is None:
        return None
    pods = members(job, jobs.pods_of(job.uid))
    answer: dict[str, Any] = {
        "job": f"{namespace}/{name}",
        "attempt": job.attempt,
        "suspended": job.suspended,
        "workers": {"expected": job.workers, "present": len(pods), "bound": sum(pod.node is not None for pod in pods)},
        "scheduling": written(jobs.record(job)),
        "pods": [{"name": pod.name, "node": pod.node or "", "gpus": list(pod.written_gpus or pod.planned_gpus)} for pod in pods],
    }
    if jobs.record(job).state is State.WAITING and pods:
        answer["nodes"] = _nodes(ledger, jobs, job, now)
    return answer


def _nodes(ledger: Ledger, jobs: Jobs, job: JobView, now: datetime) -> dict[str, str]:
    """For the largest worker: what each node says to it."""
    try:
        gang = gang_of(job, members(job, jobs.pods_of(job.uid)), jobs.record(job), now)
    except InvalidInput as error:
        return {"*": str(error)}
    return {name: _verdict(state, gang) for name, state in sorted(ledger.snapshot().nodes.items())}


def _verdict(state: NodeState, gang: Gang) -> str:
    worker = max(gang.workers, key=lambda worker: worker.gpus)
    refusal = node_refusal(state, worker, gang)
    if refusal is None and worker.gpus and state.graph is not None:
        choice = choose(state.graph, state.free, worker.gpus, gang.wish)
        refusal = choice if isinstance(choice, Refusal) else None
    return "could take one worker" if refusal is None else sentence(refusal)
