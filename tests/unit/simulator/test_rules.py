"""Rules on which simulators differ: ours, and the other that each switch chooses. One machine of four GPUs."""

import contextlib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_simulator.cluster import ClusterState
from kompakt_simulator.figures import summarize
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.placements import count
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import SWITCHES, Setting, SimulationRules, parse_rules
from kompakt_simulator.simulation import SimulationResult, simulate


def job(number: int, submit_s: int, duration_s: int, gpus: int = 4) -> TraceJob:
    return TraceJob(number, Milliseconds(submit_s * 1000), Milliseconds(duration_s * 1000), gpus)


def run(rules: str, policy: str, *jobs: TraceJob) -> SimulationResult:
    setting = Setting(rules=parse_rules(rules)) if rules else Setting()
    return simulate(jobs, ClusterState.empty(1, 4), POLICIES[policy], count, setting)


def starts(rules: str, policy: str, *jobs: TraceJob) -> dict[int, int]:
    return {done.job.number: done.start // 1000 for done in run(rules, policy, *jobs).finished}


@pytest.mark.parametrize("policy", ["sjf", "srtf", "las"])
def test_of_jobs_that_stand_alike_the_first_submitted_goes_first_or_the_smaller_id(policy: str) -> None:
    jobs = job(0, 0, 4), job(9, 1, 5), job(3, 2, 5)
    assert starts("", policy, *jobs) == starts("ties=submit", policy, *jobs) == {0: 0, 9: 4, 3: 9}
    assert starts("ties=id", policy, *jobs) == {0: 0, 3: 4, 9: 9}


def test_the_scheduler_looks_once_an_instant_or_after_each_event() -> None:
    jobs = job(0, 0, 10), job(1, 10, 9), job(2, 10, 5)
    assert starts("passes=instant", "sjf", *jobs) == {0: 0, 2: 10, 1: 15}
    assert starts("passes=event", "sjf", *jobs) == {0: 0, 1: 10, 2: 19}, "the end and the first arrival come before the second"


def test_srtf_is_free_of_cost_or_charged() -> None:
    jobs = job(0, 0, 10), job(1, 4, 2)
    ends = [{done.job.number: done.end / 1000 for done in run(rules, "srtf", *jobs).finished} for rules in ("", "srtf=charged")]
    assert ends == [{0: 12, 1: 6}, {0: 10 + 30 + 6, 1: 4 + 4 + 2}]


def test_the_makespan_ends_on_the_traces_clock_or_begins_with_the_first_submission() -> None:
    outcome = run("", "fifo", job(0, 100, 10))
    ours, other = summarize(outcome), summarize(outcome, parse_rules("makespan=submission"))
    assert (ours.makespan_s, other.makespan_s) == (110, 10)
    assert (ours.gpu_utilization, other.gpu_utilization) == (10 / 110, 1)


def test_jobs_larger_than_the_cluster_are_refused_or_an_error() -> None:
    assert [one.number for one in run("", "fifo", job(0, 0, 1, 5), job(1, 0, 1)).dropped] == [0]
    with pytest.raises(InvalidInput, match="job 0 needs 5 GPUs; the largest possible is 4"):
        run("too-large=error", "fifo", job(0, 0, 1, 5), job(1, 0, 1))


def test_dally_offers_what_an_event_freed_or_all_that_is_free() -> None:
    jobs = job(1, 0, 9000, 2), job(2, 0, 100, 1), job(3, 10, 10, 2), job(4, 500, 10, 1)  # one GPU was free before job 2 ends
    assert starts("", "dally", *jobs)[3] == starts("offers=event", "dally", *jobs)[3] == 500, "an arrival offers all"
    assert starts("offers=all", "dally", *jobs)[3] == 100


def test_dally_takes_the_first_machine_that_fits_or_the_best() -> None:
    def machine(rules: str) -> int:
        jobs = job(0, 0, 10, 4), job(1, 0, 99, 3), job(2, 20, 9, 1)  # machine 0 is empty then, of machine 1 one GPU is left
        outcome = simulate(jobs, ClusterState.empty(2, 4), POLICIES["dally"], count, Setting(rules=parse_rules(rules)))
        return next(done.gpus for done in outcome.finished if done.job.number == 2).bit_length() // 5

    assert (machine("fit=first"), machine("fit=best")) == (0, 1)


def test_every_rule_has_a_switch_whose_first_word_is_the_default() -> None:
    assert {one.field for one in SWITCHES.values()} == {each.name for each in fields(SimulationRules)}
    assert parse_rules(",".join(f"{name}={one.ours}" for name, one in SWITCHES.items())) == SimulationRules()


@pytest.mark.parametrize("text", ["", "ties", "ties=", "ties=no", "order=id", "ties=id,ties=submit", "ties=id,,"])
def test_other_words_are_refused_with_those_that_are_allowed(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--rules .*: expected some of ties=submit.id, passes=instant.event"):
        parse_rules(text)


@given(st.text(max_size=20) | st.lists(st.sampled_from(["ties=id", "srtf=charged", "x"])).map(",".join))
def test_any_text_is_rules_or_a_sentence(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert isinstance(parse_rules(text), SimulationRules)
