"""Reading pod objects, and why a pod failed: the first match decides."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core import contract
from kompakt_core.job.model import ExitCodes, ExitOperator, FailureAction, FailureRule
from kompakt_core.job.pods import Cause, Exit, WorkerPod, read_pod, told, why_failed
from kompakt_core.job.reports import merged, read_report

POD = WorkerPod("j-worker-0-a1", "uid", 1, "worker", 0, phase="Running", started=True)
ENDED = replace(POD, phase="Failed", exits=(Exit("trainer", 137),))
RULES = [FailureRule(ExitCodes(values=(42,)), FailureAction.FAIL_JOB)]

CASES: dict[str, tuple[WorkerPod, Cause | None]] = {
    "running": (POD, None),
    "succeeded": (replace(POD, phase="Succeeded"), None),
    "succeeded and being removed": (replace(POD, phase="Succeeded", deleting=True), None),
    "deleted by others": (replace(POD, deleting=True), Cause.DISRUPTION),
    "disruption target comes before its exit code": (replace(ENDED, disrupted="EvictionByEvictionAPI"), Cause.DISRUPTION),
    "node shut down": (replace(ENDED, reason="Terminated", exits=()), Cause.DISRUPTION),
    "refused by the kubelet": (
        replace(POD, phase="Failed", started=False, reason="UnexpectedAdmissionError"),
        Cause.PLACEMENT,
    ),
    "out of GPUs on arrival": (replace(POD, phase="Failed", started=False, reason="OutOfkompakt.dev/gpu"), Cause.PLACEMENT),
    "exit code with a rule": (replace(ENDED, exits=(Exit("trainer", 42),)), Cause.FAIL_JOB),
    "exit code without a rule": (ENDED, Cause.FAILURE),
    "an end that nobody saw, whatever its code": (replace(ENDED, exits=(Exit("trainer", 42, seen=False),)), Cause.DISRUPTION),
    "an end that was seen beside one that was not": (
        replace(ENDED, exits=(Exit("trainer", 255, seen=False), Exit("sidecar", 42))),
        Cause.FAIL_JOB,
    ),
    "failed without a code": (replace(ENDED, exits=(), reason="DeadlineExceeded"), Cause.FAILURE),
}


@pytest.mark.parametrize(("pod", "cause"), CASES.values(), ids=CASES)
def test_why_a_pod_failed(pod: WorkerPod, cause: Cause | None) -> None:
    assert why_failed(pod, RULES) is cause


@pytest.mark.parametrize(
    ("operator", "container", "code", "matches"),
    [
        ("In", "", 3, True),
        ("NotIn", "", 3, False),
        ("In", "trainer", 3, True),
        ("In", "sidecar", 3, False),
        ("NotIn", "", 0, False),
    ],
)
def test_a_rule_matches_by_code_and_container_and_never_code_0(operator: str, container: str, code: int, matches: bool) -> None:
    rule = FailureRule(ExitCodes(container_name=container, operator=ExitOperator(operator), values=(3,)), FailureAction.IGNORE)
    assert rule.matches("trainer", code) is matches


def pod_object(**status: Any) -> dict[str, Any]:
    labels = {contract.LABEL_ATTEMPT: "2", contract.LABEL_WORKER_INDEX: "3", contract.LABEL_ROLE: "worker"}
    meta = {"name": "j-worker-3-a2", "uid": "p", "labels": labels, "annotations": {contract.ANN_GPUS: "GPU-a,GPU-b"}}
    return {"metadata": meta, "spec": {"nodeName": "n1", "schedulingGates": [{"name": contract.GATE}]}, "status": status}


def test_a_pod_object_is_projected_to_what_decisions_need() -> None:
    ended = {"exitCode": 1, "message": "line", "finishedAt": "2026-01-01T00:00:00Z"}
    pod = read_pod(pod_object(phase="Failed", containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}]))
    assert pod is not None
    assert (pod.attempt, pod.worker_index, pod.node, pod.gated, pod.gpus) == (2, 3, "n1", True, ("GPU-a", "GPU-b"))
    assert (pod.exits, pod.reports, pod.started) == ((Exit("trainer", 1),), ("line",), True)
    assert told(pod) == "pod j-worker-3-a2 failed: container trainer ended with exit code 1"


@pytest.mark.parametrize(("code", "reason"), [(255, "Unknown"), (137, "ContainerStatusUnknown")])
def test_the_code_of_an_end_that_nobody_saw_is_no_code(code: int, reason: str) -> None:
    ended = {"exitCode": code, "reason": reason}
    pod = read_pod(pod_object(phase="Failed", containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}]))
    assert pod is not None
    assert pod.exits == (Exit("trainer", code, seen=False),)
    assert told(pod) == "pod j-worker-3-a2 failed: container trainer ended while its machine or container runtime was away"


def test_a_pod_without_our_labels_is_no_worker() -> None:
    assert read_pod({"metadata": {"name": "x"}, "spec": {}, "status": {}}) is None


@settings(deadline=None)
@given(
    st.text(max_size=200)
    | st.recursive(st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(max_size=9), x)).map(str)
)
def test_any_termination_message_is_read_or_passed_over(message: str) -> None:
    found = read_report(message)
    assert found is None or isinstance(found, dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=2) | st.dictionaries(st.text(max_size=5), x, max_size=2),
)
NAMES = "active reason mode target plainBytes savedBytes steps ranks raw violations batch suggestedBatch overhead"
KEYS = st.sampled_from(NAMES.split())


@settings(deadline=None)
@given(st.lists(st.dictionaries(KEYS, JSON | st.integers(0, 10**40)), min_size=1, max_size=4))
def test_whatever_reports_claim_the_merged_figures_fit_the_schema(reports: list[dict[str, Any]]) -> None:
    found = merged(reports)
    counts = [found[key] for key in ("plainBytes", "savedBytes", "steps", "ranks", "violations")] + list(found["raw"].values())
    assert all(0 <= count < 1 << 63 for count in counts)
    assert isinstance(found["active"], bool)
    assert isinstance(found["reason"], str)
    assert all(0 < found[key] < 1 << 63 for key in ("batch", "suggestedBatch") if key in found)


FAST, SLOW = {"percent": "9.5", "codecPercent": "8.0"}, {"percent": "12.0", "codecPercent": "7.0"}
LARGE, SMALL = {"batch": 32, "suggestedBatch": 90}, {"batch": 16, "suggestedBatch": 40}


@pytest.mark.parametrize(
    ("reports", "shown"),
    [
        pytest.param([LARGE, SMALL], {"batch": 16, "suggestedBatch": 40}, id="the smallest batch is suggested"),
        pytest.param([LARGE, {"batch": 32}], {"suggestedBatch": None}, id="once each worker has one"),
        pytest.param([{"complete": True}, {"complete": True}], {"complete": True}, id="complete if all are"),
        pytest.param([{"complete": True}, {"complete": False}], {"complete": False}, id="incomplete if one is"),
        pytest.param([{"complete": "yes"}], {"complete": False}, id="nothing but true is complete"),
        pytest.param([{"overhead": FAST}, {"overhead": SLOW}], {"overheadPercent": "12.0"}, id="the highest overhead"),
        pytest.param(
            [{"overhead": FAST}, {"overhead": {"codecPercent": "11.0"}}], {"overheadPercent": "11.0"}, id="that all have"
        ),
        *(
            pytest.param([{"overhead": FAST}, {"overhead": claim}], {"overheadPercent": None}, id=f"no overhead: {claim}")
            for claim in ({}, None, {"percent": 3.0}, {"percent": "nan"}, {"percent": "1e9"}, {"percent": "12345678.0"})
        ),
    ],
)
def test_what_reports_make_together(reports: list[dict[str, Any]], shown: dict[str, Any]) -> None:
    found = merged(reports)
    assert {key: found.get(key) for key in shown} == shown
    if percent := found.get("overheadPercent"):
        assert ("in turn" if percent == "12.0" else "summed") in found["overheadDenominator"]


@pytest.mark.parametrize(
    ("reason", "stuck"),
    [
        ("ErrImagePull", "container main cannot pull nowhere:1"),
        ("ImagePullBackOff", "container main cannot pull nowhere:1"),
        ("CreateContainerConfigError", "container main cannot start (CreateContainerConfigError)"),
        ("ContainerCreating", ""),
        ("CrashLoopBackOff", ""),
    ],
)
@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_waits_for_somebody_is_told(kind: str, reason: str, stuck: str) -> None:
    labels = {contract.LABEL_ROLE: "worker", contract.LABEL_ATTEMPT: "1", contract.LABEL_WORKER_INDEX: "0"}
    state = {"waiting": {"reason": reason, "message": "what the registry says"}}
    status = {kind: [{"name": "main", "image": "nowhere:1", "state": state}]}
    found = read_pod({"metadata": {"name": "p", "labels": labels}, "spec": {}, "status": status})
    assert found is not None
    assert found.stuck == stuck


@pytest.mark.parametrize(
    ("phase", "ended", "disrupted"),
    [("Succeeded", 9, False), ("Succeeded", 10, True), ("Succeeded", 12, True), ("Failed", 9, True)],
)
def test_exit_code_0_is_success_only_if_nobody_had_asked_the_pod_to_end(phase: str, ended: int, disrupted: bool) -> None:
    """The disruption is of second 10."""
    labels = {contract.LABEL_ROLE: "worker", contract.LABEL_ATTEMPT: "1", contract.LABEL_WORKER_INDEX: "0"}
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {
        "phase": phase,
        "conditions": [{**target, "lastTransitionTime": "2026-01-31T12:00:10Z"}],
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {"finishedAt": f"2026-01-31T12:00:{ended:02}Z", "exitCode": 0}}}
        ],
    }
    found = read_pod({"metadata": {"name": "p", "labels": labels}, "spec": {}, "status": status})
    assert found is not None
    assert (found.disrupted, found.succeeded) == ("TerminationByKubelet" if disrupted else "", not disrupted)
