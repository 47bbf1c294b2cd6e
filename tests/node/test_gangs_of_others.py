"""A Job of others on real nodes: its pods run together, each sees exactly the GPUs of the plan, also one that is made anew."""

import json

import pytest

from kompakt_core import contract as c
from tests.support.node.jobs import all_free
from tools.kube.kubectl import await_state

GANG = "pre-training"
TRAINS = "trap 'exit 143' TERM; sleep 600 & wait $!"  # with exit code 0 the Job would take a deleted pod for one that is done
READ = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')


def job(image, size=2, gpus=4):
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", TRAINS],
        "resources": {"limits": {c.RESOURCE: str(gpus)}, "requests": {"cpu": "1m"}},
    }
    metadata = {"labels": {c.LABEL_GANG: GANG}, "annotations": {c.ANN_GANG_SIZE: str(size), c.ANN_PATTERN: "Ring"}}
    pod = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    counts = {"completions": size, "parallelism": size, "completionMode": "Indexed"}
    spec = {**counts, "template": {"metadata": metadata, "spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": GANG}, "spec": spec}


def running(world):
    """Names and nodes of the pods that run, with what stands on them and what their containers see."""
    pods = world.kubectl.items("pods", f"--selector={c.LABEL_GANG}={GANG}")
    living = [pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]
    return {
        pod["metadata"]["uid"]: (pod["metadata"]["name"], pod["metadata"]["annotations"][c.ANN_GPUS], seen(world, pod))
        for pod in living
    }


def seen(world, pod):
    return world.kubectl("exec", pod["metadata"]["name"], "--", *READ).strip()


@pytest.fixture
def gang(kompakt):
    kompakt.kubectl.apply(json.dumps(job(kompakt.images.names["pause"])))
    yield GANG
    kompakt.kubectl("delete", "job", GANG, "--now", "--ignore-not-found")
    await_state(lambda: all_free(kompakt), "all GPUs free again", 120)


def test_pods_of_a_job_run_together_and_see_exactly_their_gpus(kompakt, gang):
    await_state(lambda: len(running(kompakt)) == 2, "both pods run", 90)
    first = running(kompakt)
    assert all(written == sees for _, written, sees in first.values())
    assert len({gpu for _, written, _ in first.values() for gpu in written.split(",")}) == 8
    gone, kept = sorted(first, key=lambda uid: first[uid][0])
    kompakt.kubectl("delete", "pod", first[gone][0], "--now")
    await_state(lambda: len(running(kompakt)) == 2 and gone not in running(kompakt), "the Job's new pod runs", 90)
    second = running(kompakt)
    assert second[kept] == first[kept]
    assert all(written == sees for _, written, sees in second.values())
    assert len({gpu for _, written, _ in second.values() for gpu in written.split(",")}) == 8
