"""A Job of others on real nodes: its pods run together, each sees exactly the GPUs of the plan, also one that is made anew."""

import json

import pytest

from kompakt_core import contract as c
from kompakt_core.job.reports import read_report
from tests.support.node.jobs import all_free
from tools.kube.kubectl import await_state

GANG = "pre-training"
TRAINS = "trap 'exit 143' TERM; sleep 600 & wait $!"  # with exit code 0 the Job would take a deleted pod for one that is done
READ = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')


def job(image, command=("sh", "-c", TRAINS), size=2, gpus=4, **notes):
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": {"limits": {c.RESOURCE: str(gpus)}, "requests": {"cpu": "1m"}},
    }
    metadata = {"labels": {c.LABEL_GANG: GANG}, "annotations": {c.ANN_GANG_SIZE: str(size), c.ANN_PATTERN: "Ring", **notes}}
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
def cleared(kompakt):
    yield
    kompakt.kubectl("delete", "job", GANG, "--now", "--ignore-not-found")
    await_state(lambda: not kompakt.kubectl.items("pods", f"--selector={c.LABEL_GANG}={GANG}"), "its pods gone", 60)
    await_state(lambda: all_free(kompakt), "all GPUs free again", 120)


@pytest.mark.usefixtures("cleared")
def test_pods_of_a_job_run_together_and_see_exactly_their_gpus(kompakt):
    kompakt.kubectl.apply(json.dumps(job(kompakt.images.names["pause"])))
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


@pytest.mark.usefixtures("cleared")
def test_a_job_trains_with_compressed_activations_by_an_annotation(kompakt):
    """The example's script and image, which know nothing of kompakt."""
    train = ("torchrun", "--standalone", "--nproc-per-node=2", "/app/train.py", "--epochs=2")
    notes = {c.ANN_COMPRESSION: "ErrorBounded"}
    kompakt.kubectl.apply(json.dumps(job(kompakt.images.names["kompakt-digits"], train, 1, 2, **notes)))
    await_state(lambda: ended(kompakt), "the pod ends", 240)
    (state,) = ended(kompakt)
    assert state["exitCode"] == 0, state
    told = read_report(state["message"])
    assert told is not None, state
    assert told["active"], told
    assert float(told["plainBytes"]) / float(told["savedBytes"]) > 2, told


def ended(world):
    """How containers of its pods ended."""
    pods = world.kubectl.items("pods", f"--selector={c.LABEL_GANG}={GANG}")
    found = [one["state"] for pod in pods for one in pod["status"].get("containerStatuses", ())]
    return [state["terminated"] for state in found if "terminated" in state]
