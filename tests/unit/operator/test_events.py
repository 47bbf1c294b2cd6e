"""What is told as Events when an attempt ends for another job."""

from typing import Any

from kompakt_core.contract.preempt_request import PreemptRequest, encode
from kompakt_operator.events import transitions, turns_of_others

ASKED = PreemptRequest(1, "2026-01-31T12:00:00Z", "ml", "urgent", "uid-urgent", 1000, 0)


def job(attempt: int, reason: str = "", preempt: PreemptRequest | None = None) -> dict[str, Any]:
    last = {"time": "2026-01-31T12:00:01Z", "attempt": attempt, "reason": reason, "message": "m", "delaySeconds": 0}
    scheduling = {"attempt": attempt, **({"preempt": encode(preempt)} if preempt else {})}
    status = {"attempt": attempt, "phase": "Running", "scheduling": scheduling, **({"lastRestart": last} if reason else {})}
    return {"metadata": {"name": "low", "namespace": "team", "uid": "uid-low"}, "status": status}


def test_both_jobs_are_told_who_ended_for_whom() -> None:
    before, after = job(1, preempt=ASKED), job(2, "Preempted", ASKED)
    assert ("Warning", "Preempted", "attempt 1 ends for ml/urgent, priority 1000; this job has priority 0") in list(
        transitions(before, after)
    )
    other = {"namespace": "ml", "name": "urgent", "uid": "uid-urgent"}
    assert list(turns_of_others(before, after)) == [(other, "PreemptedOther", "team/low of priority 0 ends for this job")]


def test_an_attempt_that_ended_otherwise_meanwhile_is_nobodys_preemption() -> None:
    before, after = job(1, preempt=ASKED), job(2, "WorkerFailed", ASKED)
    assert "Preempted" not in [reason for _, reason, _ in transitions(before, after)]
    assert list(turns_of_others(before, after)) == []
    assert list(turns_of_others(job(2, "Preempted"), job(2, "Preempted"))) == []
