"""A gang ended for one of higher priority, on a real kubelet: SIGTERM, the job's grace for a checkpoint, and then it goes on."""

import json
from datetime import datetime

import pytest

from kompakt_core.contract import LABEL_ATTEMPT, LABEL_JOB_NAME
from tools.kube.kubectl import await_state

NODE = "node-1"
SAVING = 5  # seconds that a worker needs for its checkpoint: longer than its pod template would give it
GRACE = 40
STEPS = 150
# It counts to STEPS, from where the file says; told to end it takes its time, writes how far it is and when, and ends.
SCRIPT = f"""
file=/state/$HOSTNAME
at=0; saved=never
[ -f $file ] && read at saved < $file
echo "begins at $at saved $saved"
trap 'sleep {SAVING}; echo $at $(date +%s) > $file.part; mv $file.part $file; exit 0' TERM
while [ $at -lt {STEPS} ]; do at=$((at + 1)); sleep 0.1; done
rm -f $file
"""


def gang(name, image, *, script, replicas, gpus, priority, policy=None):
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
    }
    state = {"name": "state", "hostPath": {"path": "/tmp/kompakt-checkpoints", "type": "DirectoryOrCreate"}}
    pod = {"containers": [container], "volumes": [state], "nodeSelector": {"kubernetes.io/hostname": NODE}}
    template = {"spec": {**pod, "terminationGracePeriodSeconds": 1}}
    role = {"name": "worker", "replicas": replicas, "gpusPerReplica": gpus, "template": template}
    spec = {"roles": [role], "communication": {"pattern": "Ring"}, "injection": "Never", "priorityClassName": priority}
    spec["runPolicy"] = policy or {}
    return {"apiVersion": "kompakt.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def classes(kompakt):
    """Two priority classes."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for name, value in (("ordinary", 10), ("urgent", 1000)):
        kompakt.kubectl.apply(json.dumps({**kind, "metadata": {"name": name}, "value": value}))
    yield
    kompakt.kubectl("delete", "priorityclass", "ordinary", "urgent")


@pytest.fixture
def start(kompakt, classes):
    """Applies a job, and deletes it afterwards."""
    names = []

    def started(name, **wishes):
        names.append(name)
        kompakt.kubectl.apply(json.dumps(gang(name, kompakt.images.names["pause"], **wishes)))

    yield started
    for name in names:
        kompakt.kubectl("delete", "trainingjob", name, "--timeout=60s")


def status(world, name):
    return world.kubectl.get("trainingjob", name).get("status", {})


def await_phase(world, name, phase, seconds=90):
    await_state(lambda: status(world, name).get("phase") == phase, f"{name} {phase}", seconds)


def pods_of(world, name, attempt):
    return world.kubectl.items("pods", f"--selector={LABEL_JOB_NAME}={name},{LABEL_ATTEMPT}={attempt}")


def test_a_preempted_gang_writes_its_checkpoint_and_goes_on_from_there(kompakt, start):
    policy = {"preemption": {"gracePeriodSeconds": GRACE, "minRuntimeSeconds": 0}}
    start("yielding", script=SCRIPT, replicas=2, gpus=4, priority="ordinary", policy=policy)
    await_phase(kompakt, "yielding", "Running")
    start("pressing", script="sleep 3", replicas=1, gpus=8, priority="urgent")
    await_phase(kompakt, "pressing", "Succeeded", 120)
    (pressing,) = pods_of(kompakt, "pressing", 1)
    began = datetime.fromisoformat(pressing["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"]).timestamp()
    await_phase(kompakt, "yielding", "Succeeded", 120)
    found = status(kompakt, "yielding")
    assert (found["attempt"], found["restarts"], found["lastRestart"]["reason"]) == (2, 0, "Preempted")
    assert "for default/pressing, priority 1000" in found["lastRestart"]["message"]
    for pod in pods_of(kompakt, "yielding", 2):
        words = kompakt.kubectl("logs", pod["metadata"]["name"]).split()
        assert words[:2] == ["begins", "at"]
        at, saved = int(words[2]), words[4]
        assert 0 < at < STEPS, "from where it was, and that was not the end"
        assert float(saved) <= began, "the GPUs were given away only when the checkpoint was written"
