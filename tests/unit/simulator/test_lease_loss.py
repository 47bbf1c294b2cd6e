"""The rules of cluster-sim, the simulator of Dally's authors, one by one: what each changes in a world of a few machines."""

import pytest

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.figures import summarize
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Setting, parse_rules
from kompakt_simulator.simulation import SimulationResult, simulate

LOST = "leases=lost"
NETWORK = Network({Level.MACHINE: 0, Level.RACK: 1, Level.CLUSTER: 4}, {"VGG": 0.6, "BERT": 0.3}, (0.0,))


def job(number: int, submit_s: int, duration_s: int, gpus: int, model: str = "", chunk_s: int = 0) -> TraceJob:
    times = Milliseconds(submit_s * 1000), Milliseconds(duration_s * 1000)
    return TraceJob(number, *times, gpus, model, chunk_ms=chunk_s * 1000)


def run(rules: str, policy: str, *jobs: TraceJob, shape: tuple[int, int, int] = (1, 1, 4)) -> SimulationResult:
    setting = Setting(lease_s=100, restart_s=0, network=NETWORK, rules=parse_rules(rules))
    outcome = simulate(jobs, ClusterState.of(ClusterShape.grid(*shape)), POLICIES[policy], levels, setting)
    assert summarize(outcome).violations == 0
    return outcome


def spans(outcome: SimulationResult, number: int) -> list[tuple[float, float]]:
    return [(one.start / 1000, one.end / 1000) for one in outcome.stretches if one.number == number]


@pytest.mark.parametrize("policy", ["las", "tiresias", "dally"])
def test_a_job_alone_keeps_its_lease_or_loses_it_each_time_and_waits_for_the_checkpoint(policy: str) -> None:
    alone = job(0, 0, 250, 4)
    assert spans(run("leases=kept", policy, alone), 0) == [(0, 250)]
    assert spans(run(LOST, policy, alone), 0) == [(0, 100), (104, 204), (208, 258)]


def test_who_arrives_takes_gpus_that_are_not_yet_offered_again() -> None:
    outcome = run(LOST, "dally", job(0, 0, 150, 4), job(1, 102, 10, 4))
    assert spans(outcome, 1) == [(102, 112)]
    assert spans(outcome, 0) == [(0, 100), (112, 162)], "its own are taken at 104; it gets those of the other's end"


@pytest.mark.parametrize("rules", [f"{LOST},las-offers=event", LOST])
def test_an_event_offers_its_own_gpus_or_all_that_are_free(rules: str) -> None:
    jobs = job(0, 0, 10, 2), job(1, 0, 30, 2), job(2, 1, 5, 4)
    assert spans(run(rules, "dally", *jobs), 2) == [(90, 95)], "a minute after the last event, which brought back two GPUs"
    assert spans(run(rules, "las", *jobs), 2) == ([(90, 95)] if "event" in rules else [(30, 35)])


def test_the_gpus_of_a_job_that_has_ended_are_offered_at_once_or_after_the_checkpoint() -> None:
    jobs = job(0, 0, 10, 4), job(1, 1, 5, 4)
    assert spans(run(LOST, "dally", *jobs), 1) == [(10, 15)]
    assert spans(run(f"{LOST},ends=charged", "dally", *jobs), 1) == [(14, 19)]


def test_a_lease_is_cut_or_ends_with_a_whole_chunk() -> None:
    alone = job(0, 0, 130, 4, chunk_s=30)
    assert spans(run(LOST, "dally", alone), 0) == [(0, 100), (104, 134)]
    assert spans(run(f"{LOST},chunks=whole", "dally", alone), 0) == [(0, 120), (124, 134)]
    fits = job(0, 0, 130, 1, chunk_s=60)
    assert spans(run(f"{LOST},chunks=whole", "dally", fits), 0)[0] == (0, 60), "60 + 60 / 1 GPU is more than a lease"


def test_dally_takes_the_first_machine_that_fits_or_the_first_half_of_one() -> None:
    jobs = job(0, 0, 50, 2), job(1, 1, 5, 4)
    held = [
        {done.job.number: done.gpus for done in run(rules, "dally", *jobs, shape=(1, 2, 8)).finished}[1]
        for rules in ("parts=machine", "parts=half")
    ]
    assert held == [0b0011_1100, 0b1111_0000]


def test_where_no_half_has_enough_the_machine_is_taken() -> None:
    outcome = run("parts=half", "dally", job(0, 0, 5, 6), shape=(1, 2, 8))
    assert outcome.finished[0].gpus == 0b0011_1111


def test_tiresias_serves_by_queue_and_submission_or_by_service_alone() -> None:
    jobs = job(0, 0, 150, 4), job(1, 1, 150, 4)
    assert spans(run(LOST, "tiresias", *jobs), 0)[1] == (104, 154)
    assert spans(run(f"{LOST},queues=one", "tiresias", *jobs), 1)[0] == (104, 204)


@pytest.mark.parametrize(("model", "ratio", "models"), [("BERT", 50, 2), ("VGG", 50, 50)])
def test_who_may_spread_is_told_by_communication_or_by_a_list(model: str, ratio: int, models: int) -> None:
    jobs = job(0, 0, 50, 3), job(1, 0, 60, 3), job(2, 2, 5, 2, model)
    starts = [spans(run(f"{LOST},{rule}", "tiresias", *jobs, shape=(1, 2, 4)), 2)[0][0] for rule in ("skew=ratio", "skew=models")]
    assert starts == [ratio, models]


def test_by_the_list_any_job_takes_a_rack_where_a_machines_worth_of_gpus_is_on_offer() -> None:
    jobs = job(0, 0, 50, 2), job(1, 0, 60, 3), job(2, 0, 60, 3), job(3, 0, 60, 3), job(4, 2, 5, 3, "VGG")
    starts = [spans(run(f"{LOST},{rule}", "tiresias", *jobs, shape=(1, 4, 4)), 4)[0][0] for rule in ("skew=ratio", "skew=models")]
    assert starts == [50, 2]


def test_everything_is_offered_a_minute_after_the_last_offer_not_after_the_last_end() -> None:
    jobs = job(0, 0, 10, 2), job(1, 0, 30, 2), job(2, 1, 5, 4)
    assert spans(run(f"{LOST},ends=charged", "dally", *jobs), 2) == [(92, 97)], "two GPUs come back at 32"


def test_everything_is_offered_after_a_minute_each_time_that_nothing_else_is_left() -> None:
    jobs = job(0, 0, 10, 4), job(1, 0, 30, 4), job(2, 1, 5, 6), job(3, 2, 5, 8)
    outcome = run(LOST, "dally", *jobs, shape=(1, 1, 8))
    assert (spans(outcome, 2), spans(outcome, 3)) == ([(90, 95)], [(155, 160)])
