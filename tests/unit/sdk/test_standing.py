"""Why a job does not run, told from its own status."""

from typing import Any

import pytest

from kompakt.standing import told, why

FAILED = {"type": "Failed", "status": "True", "reason": "InvalidTemplate", "message": "image: Required value"}
STALLED = {"type": "Stalled", "status": "True", "reason": "NameTaken", "message": "a Service has the name"}
PULLING = {"type": "Reconciling", "status": "True", "reason": "WorkersNotRunning", "message": "container c cannot pull i"}
QUOTA = {"type": "Reconciling", "status": "True", "reason": "QuotaExceeded", "message": "the quota is smaller than the gang"}
KUEUE = {"type": "Reconciling", "status": "True", "reason": "WaitingForQuota", "message": "queue team-a: no quota"}
QUIET = {"type": "Reconciling", "status": "True", "reason": "WorkersNotRunning", "message": ""}
NODES = {**KUEUE, "reason": "WaitingForNodes", "message": "ProvisioningRequest j-a1: no node group has so many"}
NO_ROOM = {"state": "Waiting", "message": "there is no room"}


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({}, ""),
        ({"phase": "Failed", "conditions": [FAILED, PULLING]}, "InvalidTemplate: image: Required value"),
        ({"phase": "Pending", "conditions": [STALLED], "scheduling": NO_ROOM}, "NameTaken: a Service has the name"),
        (
            {"phase": "Starting", "conditions": [PULLING], "scheduling": {"message": "all have places"}},
            "container c cannot pull i",
        ),
        ({"phase": "Pending", "conditions": [QUIET], "scheduling": NO_ROOM}, "there is no room"),
        ({"phase": "Pending", "conditions": [QUOTA], "scheduling": {"state": "Waiting"}}, "the quota is smaller than the gang"),
        ({"phase": "Pending", "conditions": [KUEUE], "scheduling": {"message": "all have places"}}, "queue team-a: no quota"),
        (
            {"phase": "Pending", "conditions": [NODES], "scheduling": NO_ROOM},
            "there is no room; ProvisioningRequest j-a1: no node group has so many",
        ),
        ({"phase": "Starting", "conditions": [QUIET]}, ""),
        ({"phase": "Restarting", "lastRestart": {"message": "pod x: exit code 3"}}, "pod x: exit code 3"),
        ({"phase": "Running", "conditions": [PULLING], "lastRestart": {"message": "pod x"}}, ""),
        ({"phase": "Succeeded", "conditions": [{**FAILED, "status": "False"}]}, ""),
    ],
)
def test_the_strongest_word_is_told(status: dict[str, Any], sentence: str) -> None:
    assert why(status) == sentence


def test_a_job_that_is_over_tells_what_compression_saved() -> None:
    job = {"metadata": {"name": "j"}, "status": {"phase": "Succeeded", "attempt": 2, "compression": {"ratio": "5.00"}}}
    assert told(job) == "j: Succeeded, attempt 2 (activations 5.00 times smaller)"
