"""What Limits say of a job, without an API server: tests/cluster/test_limits.py says the same of the admission policy."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kompakt_core.job.limited import JobDemand, NamedLimits, beyond, longest_run, meaning, no_preemptor, no_victim, selected
from kompakt_core.job.limits import LimitsSpec, NamespaceSelector

NAME = "kubernetes.io/metadata.name"
HERE = {"matchLabels": {NAME: "default"}}
LABELS = {NAME: "default"}
SMALL = JobDemand(workers=4, gpus=16, edges=2, min_runtime_seconds=600, grace_seconds=120, template_grace_seconds=120)


def limits(name: str = "narrow", **spec: Any) -> NamedLimits:
    return NamedLimits(name, msgspec.convert(spec, LimitsSpec))


def term(operator: str, *values: str, key: str = NAME) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        (None, True),
        (HERE, True),
        ({"matchLabels": {NAME: "elsewhere"}}, False),
        ({"matchLabels": {"absent": ""}}, False),
        (term("In", "default", "other"), True),
        (term("In", "other"), False),
        (term("In", "default", key="absent"), False),
        (term("NotIn", "other"), True),
        (term("NotIn", "default"), False),
        (term("NotIn", "default", key="absent"), True),
        (term("Exists"), True),
        (term("Exists", key="absent"), False),
        (term("DoesNotExist", key="absent"), True),
        (term("DoesNotExist"), False),
        ({**HERE, **term("NotIn", "default")}, False),
    ],
)
def test_limits_mean_the_namespaces_that_a_label_selector_means(selector: Any, meant: bool) -> None:
    found = None if selector is None else msgspec.convert(selector, NamespaceSelector)
    assert selected(found, LABELS) == meant


def test_limits_of_priority_classes_mean_jobs_of_these() -> None:
    low = limits(priorityClassNames=["low", ""])
    classes = [("low",), ("",), ("high", "low"), ("high",)]
    assert [bool(meaning([low], LABELS, one)) for one in classes] == [True, True, True, False]


def test_a_namespace_that_is_not_known_yet_is_meant_by_all() -> None:
    assert meaning([limits(namespaceSelector={"matchLabels": {"team": "vision"}})], None, ("",))


@pytest.mark.parametrize(
    ("most", "more", "words"),
    [
        ({"maxWorkers": 4}, {"workers": 5}, "asks for 5 pods; Limits narrow of the cluster allow 4 (maxWorkers)"),
        ({"maxGPUs": 16}, {"gpus": 18}, "asks for 18 GPUs; Limits narrow of the cluster allow 16 (maxGPUs)"),
        ({"maxEdges": 2}, {"edges": 3}, "3 custom edges"),
        ({"maxMinRuntimeSeconds": 600}, {"min_runtime_seconds": 601}, "601 as runPolicy.preemption.minRuntimeSeconds"),
        ({"maxGracePeriodSeconds": 120}, {"grace_seconds": 121}, "121 as runPolicy.preemption.gracePeriodSeconds"),
        ({"maxGracePeriodSeconds": 120}, {"template_grace_seconds": 121}, "121 as terminationGracePeriodSeconds"),
        ({"maxConsolidationWaitSeconds": 60}, {"wait_seconds": 61}, "asks for 61 as placement.consolidation.blockWaitSeconds"),
        ({"maxConsolidationWaitSeconds": 60}, {"never_relaxes": True}, "NeverRelax, a wait without end; Limits narrow"),
        ({"mayUseCustomPatterns": False}, {"custom": True}, "pattern Custom; Limits narrow of the cluster"),
    ],
)
def test_a_job_beyond_limits_is_told_so_with_both_numbers(most: dict[str, Any], more: dict[str, Any], words: str) -> None:
    assert beyond([limits(**most)], SMALL) == ""
    assert words in beyond([limits("wide"), limits(**most)], replace(SMALL, **more))


def test_a_plain_pod_is_called_one() -> None:
    words = "this pod asks for 8 GPUs; Limits narrow of the cluster allow 4 (maxGPUs)"
    assert beyond([limits(maxGPUs=4)], JobDemand(gpus=8), "pod") == words
    words = "this pod has pattern Custom; Limits narrow of the cluster do not let it (mayUseCustomPatterns)"
    assert beyond([limits(mayUseCustomPatterns=False)], JobDemand(custom=True), "pod") == words


def test_a_pod_that_cannot_say_how_long_it_stays_stays_no_longer_than_limits_let_it() -> None:
    assert longest_run([], 300) == 300
    assert longest_run([limits(), limits(maxMinRuntimeSeconds=900)], 300) == 300
    assert longest_run([limits(maxMinRuntimeSeconds=100), limits(maxMinRuntimeSeconds=0)], 300) == 0


def test_a_right_is_given_where_nothing_is_said_and_taken_by_any() -> None:
    assert (no_preemptor([limits()]), no_victim([limits()])) == ("", "")
    assert no_preemptor([limits(), limits("calm", mayPreemptOthers=False)]) == "calm"
    assert no_victim([limits("safe", mayBePreemptedByOthers=False), limits()]) == "safe"
