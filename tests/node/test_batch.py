"""A raised batch in real pods: measured by the first attempt, expanded by kubelet in the second one's arguments."""

import json
import re
from pathlib import Path

import yaml

from tests.support.turns import in_turn
from tools.kube import following

ROOT = Path(__file__).parents[2]
TRAIN = "exec torchrun --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /app/train.py --epochs=2 --batch-size=$0"
SCRIPT = f'echo "batch $0"; {TRAIN}'


def job(image):
    """The example's, with one worker that takes its batch from the arguments that Kubernetes expands."""
    made = yaml.safe_load((ROOT / "examples" / "digits" / "job.yaml").read_text())
    made["metadata"]["name"] = "raised"
    role = made["spec"]["roles"][0]
    role |= {"replicas": 1, "gpusPerReplica": 1}
    role["template"]["spec"]["containers"][0] |= {
        "image": image,
        "command": ["sh", "-c"],
        "args": [SCRIPT, "$(KOMPAKT_BATCH_SIZE)"],
    }
    made["spec"]["activationCompression"] |= {"batchSize": "Raise", "baseBatchSize": 16, "maxBatchSize": 24}
    return made


@in_turn(1)
def test_the_second_attempt_trains_with_the_batch_that_the_first_one_measured(kompakt):
    kubectl, told = kompakt.kubectl, []
    kubectl("apply", "--filename=-", stdin=json.dumps(job(kompakt.images.names["kompakt-digits"])))
    status = following.follow(kubectl, "raised", told.append)["status"]
    assert (status["attempt"], status["restarts"], status["lastRestart"]["reason"]) == (2, 0, "BatchMeasured"), told
    assert (status["batch"]["state"], status["batch"]["size"], status["batch"]["base"]) == ("Raised", 24, 16)
    log = following.trainer_log(kubectl, "raised")
    assert re.search(r"^batch 24$", log, re.MULTILINE), log
    figures = status["compression"]
    assert (figures["active"], figures["batch"]) == (True, 24)
    assert float(figures["overheadPercent"]) > 0
    assert "summed" in figures["overheadDenominator"], "a raised batch is never trained plainly"
