"""What is told as Events when an attempt ends for another job, and how often it is written."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kompakt_client.errors import ApiError, Unreachable, error_of
from kompakt_client.events import WRITE_SECONDS
from kompakt_core.contract.preempt_request import PreemptRequest, encode
from kompakt_operator.api import OperatorApi
from kompakt_operator.events import EventAnnouncer, transitions, turns_of_others

ASKED = PreemptRequest(1, "2026-01-31T12:00:00Z", "ml", "urgent", "uid-urgent", 1000, 0)
STRANGER = replace(ASKED, namespace="", name="")


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


def test_a_job_of_another_namespace_is_neither_named_nor_told() -> None:
    before, after = job(1, preempt=STRANGER), job(2, "Preempted", STRANGER)
    said = [message for _, reason, message in transitions(before, after) if reason == "Preempted"]
    assert said == ["attempt 1 ends for a job of another namespace (uid uid-urgent), priority 1000; this job has priority 0"]
    assert list(turns_of_others(before, after)) == []


def test_an_attempt_that_ended_otherwise_meanwhile_is_nobodys_preemption() -> None:
    before, after = job(1, preempt=ASKED), job(2, "WorkerFailed", ASKED)
    assert "Preempted" not in [reason for _, reason, _ in transitions(before, after)]
    assert list(turns_of_others(before, after)) == []
    assert list(turns_of_others(job(2, "Preempted"), job(2, "Preempted"))) == []


class EventSink(OperatorApi):
    """Takes Events, or answers with an error."""

    def __init__(self) -> None:
        self.made, self.counted = list[tuple[str, Mapping[str, Any]]](), list[tuple[str, Mapping[str, Any]]]()
        self.error: ApiError | None = None

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        return self._take(self.made, path, body)

    async def merge(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._take(self.counted, path, body)

    def _take(self, taken: list[tuple[str, Mapping[str, Any]]], path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        taken.append((path, body))
        return dict(body)


def suspended(holds: bool) -> dict[str, Any]:
    condition = {"type": "Suspended", "status": str(holds), "reason": "Suspended", "message": "m", "lastTransitionTime": "t"}
    return {**job(1), "status": {"attempt": 1, "phase": "Running", "conditions": [condition]}}


async def test_a_job_suspended_again_and_again_is_one_event_with_a_count() -> None:
    now, api = [1000.0], EventSink()
    announcer = EventAnnouncer(api, "pod-a", lambda: now[0])
    for _ in range(3):
        await announcer.announce(suspended(False), suspended(True))
    await announcer.announce(suspended(True), suspended(True))
    ((path, event),) = api.made
    assert path == "/api/v1/namespaces/team/events"
    assert event["involvedObject"]["uid"] == "uid-low"
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Suspended", "m")
    assert (event["source"], event["reportingInstance"]) == ({"component": "kompakt-operator"}, "pod-a")
    assert api.counted == []
    now[0] += WRITE_SECONDS
    await announcer.flush()
    ((path, counted),) = api.counted
    assert path == f"/api/v1/namespaces/team/events/{event['metadata']['name']}"
    assert counted["series"]["count"] == 3


async def test_an_event_that_the_api_server_does_not_take_now_is_made_later(caplog: pytest.LogCaptureFixture) -> None:
    api = EventSink()
    announcer = EventAnnouncer(api, "pod-a")
    api.error = Unreachable("away")
    await announcer.announce(suspended(False), suspended(True))
    assert "Event Suspended for team/low is made later: away" in caplog.text
    api.error = None
    await announcer.flush()
    await announcer.flush()
    assert len(api.made) == 1


async def test_an_event_that_is_refused_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    api = EventSink()
    api.error = error_of(403, b"{}")
    announcer = EventAnnouncer(api, "pod-a")
    await announcer.announce(suspended(False), suspended(True))
    assert "Event Suspended for team/low is not made" in caplog.text
    api.error = None
    await announcer.flush()
    assert api.made == []


async def test_both_jobs_of_a_preemption_get_their_events_in_their_namespaces() -> None:
    api = EventSink()
    await EventAnnouncer(api, "pod-a").announce(job(1, preempt=ASKED), job(2, "Preempted", ASKED))
    told = [(path.split("/")[4], body["involvedObject"]["name"], body["reason"]) for path, body in api.made]
    assert told == [("team", "low", "AttemptStarted"), ("team", "low", "Preempted"), ("ml", "urgent", "PreemptedOther")]
