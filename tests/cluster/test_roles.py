"""A job of as many roles as a job may have, one of them without GPUs."""

from kompakt_core.contract import ANN_GPUS, ANN_RANK, LABEL_WORKER_INDEX
from tools.kube.jobs import apply, training_job
from tools.kube.session import ClusterSession

GPUS = (1, 2, 0, 4, 1, 1, 2, 1)  # by role; the first has two pods


def test_eight_roles_are_one_gang(kompakt: ClusterSession, namespace: str) -> None:
    body = training_job("many", seconds=None)
    (role,) = body["spec"]["roles"]
    roles = [{**role, "name": f"role-{i}", "gpusPerReplica": gpus, "replicas": 1 + (i == 0)} for i, gpus in enumerate(GPUS)]
    body["spec"]["roles"] = roles
    body["spec"]["runPolicy"] = {"successPolicy": {"targetRoles": ["role-2", "role-7"]}}
    job = apply(kompakt, namespace, body)
    status = job.await_phase("Running")
    pods = {pod.metadata.name: pod for pod in job.pods()}
    held = {
        name: len(list(filter(None, (pod.metadata.annotations.get(ANN_GPUS) or "").split(",")))) for name, pod in pods.items()
    }
    assert held == {"many-role-0-1-a1": 1} | {f"many-role-{i}-0-a1": gpus for i, gpus in enumerate(GPUS)}
    assert {pod.metadata.labels[LABEL_WORKER_INDEX] for pod in pods.values()} == {str(i) for i in range(9)}
    ranks = {name: int(pod.metadata.annotations[ANN_RANK]) for name, pod in pods.items()}
    assert sorted(ranks.values()) == list(range(9))
    assert ranks["many-role-0-0-a1"] == 0
    assert ranks["many-role-2-0-a1"] == 8, "a pod without GPUs takes no rank among those that have some"
    nodes = {e.value for pod in pods.values() for e in pod.spec.containers[0].env if e.name == "PET_NNODES"}
    assert nodes == {"8"}, "torchrun counts pods with GPUs"
    assert (status["gpus"], [role["active"] for role in status["roles"]]) == (13, [2, 1, 1, 1, 1, 1, 1, 1])
    job.finish()
    job.await_phase("Succeeded")
