"""The admission policy of Limits and the planner look at the same fields and say the same of them."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kompakt_core.job.limited import JobDemand, NamedLimits, beyond
from kompakt_core.job.limits import LimitsSpec
from kompakt_extender.project_job import read_job
from tests.support.chart import objects, of_kind

MORE = {
    "maxWorkers": JobDemand(workers=9),
    "maxGPUs": JobDemand(gpus=9),
    "maxEdges": JobDemand(edges=9),
    "maxMinRuntimeSeconds": JobDemand(min_runtime_seconds=9),
    "maxConsolidationWaitSeconds": JobDemand(wait_seconds=9),
    "maxGracePeriodSeconds": JobDemand(grace_seconds=9, template_grace_seconds=1),
    "mayUseCustomPatterns": JobDemand(custom=True),
}


OF_JOBS = ["maxWorkers", "maxMinRuntimeSeconds", "maxConsolidationWaitSeconds"]  # a plain pod is one, and cannot say these


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """What the policy says of jobs, with 9 for what is asked for, 1 for what is allowed, and the name n."""
    return sentences_of("kompakt-admission-limits")


def sentences_of(policy: str) -> list[str]:
    validations = of_kind(objects(), "ValidatingAdmissionPolicy")[policy]["spec"]["validations"]
    return [said(one["messageExpression"]) for one in validations]


def said(expression: str) -> str:
    parts = re.findall(r"'((?:[^'])*)'|(params\.metadata\.name)|string\((params\.spec\.\w+)\)", joined(expression))
    return "".join(text or ("n" if name else "1") for text, name, _ in parts)


def joined(expression: str) -> str:
    """With what is computed from the job as 9."""
    return re.sub(r"string\((?!params\.).*?\) \+ '", "'9' + '", expression, count=1)


@pytest.mark.parametrize("field", MORE)
def test_the_planner_says_of_a_job_what_the_policy_says(sentences: list[str], field: str) -> None:
    value = False if field.startswith("may") else 1
    found = beyond([NamedLimits("n", msgspec.convert({field: value}, LimitsSpec))], MORE[field])
    assert found in sentences
    if field == "maxConsolidationWaitSeconds":
        assert beyond([NamedLimits("n", msgspec.convert({field: value}, LimitsSpec))], JobDemand(never_relaxes=True)) in sentences
    if field == "maxGracePeriodSeconds":
        other = replace(MORE[field], grace_seconds=1, template_grace_seconds=9)
        assert beyond([NamedLimits("n", msgspec.convert({field: value}, LimitsSpec))], other) in sentences


def test_of_plain_pods_both_say_the_same_too() -> None:
    asked = JobDemand(workers=1, gpus=9, edges=9, custom=True, min_runtime_seconds=0, grace_seconds=0, template_grace_seconds=9)
    found = sentences_of("kompakt-admission-limits-pods")
    spec = {field: False if field.startswith("may") else 1 for field in MORE}
    each = [beyond([NamedLimits("n", msgspec.convert({field: spec[field]}, LimitsSpec))], asked, "pod") for field in MORE]
    assert sorted(filter(None, each)) == sorted(found)
    assert [field for field, words in zip(MORE, each, strict=True) if not words] == OF_JOBS


def test_every_maximum_is_looked_at_by_both(sentences: list[str]) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(LimitsSpec)}
    maxima = {name for name in fields if name.startswith("max")} | {"mayUseCustomPatterns"}
    assert maxima == MORE.keys() == {re.findall(r"\((\w+)\)$", one)[0] for one in sentences}


def job(*roles: dict[str, Any], **spec: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {"roles": roles, **spec}})


def role(replicas: int = 2, gpus: int = 4, **template: Any) -> dict[str, Any]:
    return {"replicas": replicas, "gpusPerReplica": gpus, "template": {"spec": {"containers": [], **template}}}


def test_what_a_job_says_nothing_of_counts_as_its_default() -> None:
    assert read_job(job(role())).asked == JobDemand(2, 8, 0, False, 300, 60, 30, ("",))


def test_all_roles_count_and_the_longest_grace_and_the_classes_of_templates() -> None:
    roles = (
        role(priorityClassName="low", terminationGracePeriodSeconds=5),
        role(1, 0, terminationGracePeriodSeconds=90),
        role(1, 1),
    )
    asked = read_job(job(*roles)).asked
    assert (asked.workers, asked.gpus, asked.template_grace_seconds, asked.classes) == (4, 9, 90, ("", "low"))
    assert read_job(job(role(terminationGracePeriodSeconds=5))).asked.template_grace_seconds == 5


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ({"mode": "Fixed", "machineWaitSeconds": 1, "rackWaitSeconds": 2, "blockWaitSeconds": 7}, (7, False)),
        ({"mode": "Fixed"}, (3600, False)),
        ({"mode": "NeverRelax"}, (0, True)),
        ({"mode": "NoWait", "blockWaitSeconds": 3600}, (0, False)),
        ({}, (0, False)),
    ],
)
def test_a_job_asks_for_the_wait_of_its_mode(told: dict[str, Any], asked: tuple[int, bool]) -> None:
    found = read_job(job(role(), placement={"consolidation": told})).asked
    assert (found.wait_seconds, found.never_relaxes) == asked


def test_the_jobs_own_words_lead() -> None:
    edges = {"customEdges": {"scope": "Pod", "edges": [{"from": 0, "to": 1}]}}
    policy = {"preemption": {"minRuntimeSeconds": 0, "gracePeriodSeconds": 7}}
    asked = read_job(job(role(priorityClassName="low"), priorityClassName="high", communication=edges, runPolicy=policy)).asked
    assert asked == JobDemand(2, 8, 1, True, 0, 7, 30, ("high",))
