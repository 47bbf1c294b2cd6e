"""Between operator and runtime: the environment one writes and the other reads, and the line that comes back at the end."""

import json
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job.gradients import in_force
from kompakt_core.job.measured import Pace, at_the_end, written
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.reports import merged, read_report
from kompakt_core.job.spec import parse_job
from kompakt_operator import render
from kompakt_runtime import config
from kompakt_runtime.amounts import AMOUNT, Amount
from kompakt_runtime.budget.figures import BudgetFigures, BudgetPlan
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Away, Figures
from tests.support.crds import schema

PLAN = BudgetPlan(frozenset({"a", "b"}), frozenset({"c"}), 990, 0.0125)


def parsed(**spec: object) -> TrainingJob:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    roles = [{"name": "worker", "gpusPerReplica": 2, "template": template}]
    return parse_job({"metadata": {"name": "j", "namespace": "ml", "uid": "u"}, "spec": {"roles": roles, **spec}})


def test_the_slowest_ranks_pace_arrives_in_the_status_as_its_schema_has_it() -> None:
    paces = [{"stepSeconds": seconds, "gradientBytes": 4096, "ranks": 2} for seconds in (0.1, 0.2)]
    rows = [export.report(Figures(), "", pace) for pace in paces]
    message = json.dumps(export.merged(config.RuntimeConfig(), [*rows, export.report(Figures())]))
    found = at_the_end([WorkerPod("j-worker-0-a1", "uid", 1, "worker", 0, reports=(message,))])
    assert found == Pace(0.2, 4096, 2)
    job = parsed(communication={"gradientBytes": "1M"})
    assert {*written(found, job, "Rack"), "stalls"} == set(schema("trainingjobs", "status", "profile")["properties"])


@given(st.one_of(st.from_regex(AMOUNT, fullmatch=True), st.text(max_size=12)))
def test_an_amount_that_the_operator_takes_is_one_that_the_runtime_reads(text: str) -> None:
    try:
        Amount.of(text)
    except ValueError:
        with pytest.raises(InvalidInput):
            parsed(activationCompression={"memoryBudget": text or "0"})
    else:
        assert parsed(activationCompression={"memoryBudget": text}).compression.memory_budget == text


@dataclass
class Saved:
    """What the runtime's account of what is held asks of a saved tensor."""

    layer: str
    held_bytes: int
    nbytes: int
    share: object = None


def line(plain: int, saved: int) -> str:
    """The termination message of a pod with two ranks."""
    figures = [
        Figures(
            plain_bytes=plain,
            saved_bytes=saved,
            forwards=9,
            steps=4,
            compressed=1,
            overhead=lambda: {"percent": "17.2"},
            away=Away(tensors=3, bytes=300, late=1, reasons=Counter(NotHidden=5)),
            raw_bytes=Counter(Small=7),
            budget=lambda: BudgetFigures("1000", 1000, PLAN, 700, 2000, 0.04, 0.0, 300).said(),
        )
        for _ in range(2)
    ]
    for held, rank in enumerate(figures, 40):
        rank.holding.weigh(Saved("encoder.3", held, 90))
        rank.holding.reserved, rank.holding.allocated = 1000, 900
    configured = config.RuntimeConfig(mode="ErrorBounded", attempt=3)
    return (
        "Traceback of the script's own\n"
        + json.dumps(export.merged(configured, [export.report(f, ended=True) for f in figures]))
        + "\n"
    )


def test_the_runtimes_figures_arrive_in_the_status_as_its_schema_has_them() -> None:
    reports = [read_report(line(1000, 250)), read_report(line(1000, 150))]
    found = merged(report for report in reports if report is not None)
    assert (found["active"], found["reason"], found["ranks"], found["steps"]) == (True, "Active", 4, 4)
    assert (found["plainBytes"], found["savedBytes"], found["ratio"]) == (4000, 800, "5.00")
    assert found["denominator"] == export.DENOMINATOR
    assert found["complete"] is True
    assert (found["offloadedBytes"], found["offloadReasons"]) == (1200, {"NotHidden": 20})
    assert (found["overheadPercent"], "in turn" in found["overheadDenominator"]) == ("17.2", True)
    assert (found["peakBytes"], found["plainPeakBytes"], found["peakTensor"]) == (41, 90, "encoder.3, saved")
    assert found["peakStep"] == 1
    assert (found["reservedBytes"], found["allocatedBytes"], found["rawBytes"]) == (1000, 900, {"Small": 28})
    budget, declared = found["memoryBudget"], schema("trainingjobs", "status", "compression", "memoryBudget")["properties"]
    assert (budget["bytes"], budget["peakBytes"], budget["leastBytes"], budget["milliseconds"]) == (1000, 990, 700, "12.500")
    assert set(budget) == set(declared)
    assert set(found) <= set(schema("trainingjobs", "status", "compression")["properties"])


@pytest.mark.parametrize(
    "compression",
    [
        {},
        {"mode": "ErrorBounded", "failurePolicy": "Fail"},
        {"activationGradients": "Exact"},
        {"nonlinearInputs": "Keep"},
        {"mode": "Lossless"},
        {"offload": "Auto"},
        {"memoryBudget": "1.5Gi"},
        {"targetGradientError": ".05", "minTensorBytes": 4096, "overrides": [{"modules": "head.*", "mode": "None"}]},
    ],
)
def test_the_runtime_understands_what_the_operator_writes(compression: dict[str, object]) -> None:
    job = parsed(activationCompression=compression)
    told = in_force(job, None, 0)
    pod = render.pod(job, job.roles[0], 0, 7, image="i", gradients=told)
    environment = {v["name"]: v["value"] for v in pod["spec"]["containers"][0]["env"] if "value" in v}
    read = config.RuntimeConfig.from_env(environment)
    wanted, settings = job.compression, ("mode", "offload", "target", "failure_policy", "min_tensor_bytes")
    assert [getattr(read, name) for name in settings] == [getattr(wanted, name) for name in settings]
    assert read.bounds_activations == (told == "Bounded")
    assert ("" if read.memory_budget is None else read.memory_budget.text) == wanted.memory_budget
    assert (read.attempt, read.state_dir) == (7, contract.INJECT_STATE_PATH)
    assert [(o.modules, o.mode) for o in read.overrides] == [(o.modules, o.mode) for o in wanted.overrides]
