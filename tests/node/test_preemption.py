"""A gang ended for one of higher priority, on a real kubelet: SIGTERM, the job's grace for a checkpoint, and then it goes on."""

import json
from datetime import datetime

import pytest

from tests.support.node.jobs import await_phase, pods_of, status

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


# The file outlives the pod on the one node that all of them run on.
STATE = {"name": "state", "hostPath": {"path": "/tmp/kompakt-checkpoints", "type": "DirectoryOrCreate"}}
PLACE = {
    "pod": {"volumes": [STATE], "nodeSelector": {"kubernetes.io/hostname": NODE}},
    "container": {"securityContext": {"runAsUser": 0}, "volumeMounts": [{"name": "state", "mountPath": "/state"}]},
}


@pytest.fixture
def classes(kompakt):
    """Two priority classes."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for name, value in (("ordinary", 10), ("urgent", 1000)):
        kompakt.kubectl.apply(json.dumps({**kind, "metadata": {"name": name}, "value": value}))
    yield
    kompakt.kubectl("delete", "priorityclass", "ordinary", "urgent")


def test_a_preempted_gang_writes_its_checkpoint_and_goes_on_from_there(kompakt, classes, jobs):
    policy = {"preemption": {"gracePeriodSeconds": GRACE, "minRuntimeSeconds": 0}}
    jobs.apply("yielding", SCRIPT, gpus=4, priorityClassName="ordinary", runPolicy=policy, **PLACE)
    await_phase(kompakt, "yielding", "Running")
    jobs.apply("pressing", "sleep 1", replicas=1, gpus=8, priorityClassName="urgent", **PLACE)
    await_phase(kompakt, "pressing", "Succeeded", seconds=120)
    (pressing,) = pods_of(kompakt, "pressing", 1)
    began = datetime.fromisoformat(pressing["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"]).timestamp()
    await_phase(kompakt, "yielding", "Succeeded", seconds=120)
    found = status(kompakt, "yielding")
    assert (found["attempt"], found["restarts"], found["lastRestart"]["reason"]) == (2, 0, "Preempted")
    assert "for default/pressing, priority 1000" in found["lastRestart"]["message"]
    for pod in pods_of(kompakt, "yielding", 2):
        words = kompakt.kubectl("logs", pod["metadata"]["name"]).split()
        assert words[:2] == ["begins", "at"]
        at, saved = int(words[2]), words[4]
        assert 0 < at < STEPS, "from where it was, and that was not the end"
        assert float(saved) <= began, "the GPUs were given away only when the checkpoint was written"
