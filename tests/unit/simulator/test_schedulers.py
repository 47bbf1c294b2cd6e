"""Waiting, relaxing, stopping: worlds small enough to follow by hand. Two racks of two machines of four GPUs."""

import pytest

from kompakt_simulator.cluster import GpuSet
from kompakt_simulator.figures import violations_of
from kompakt_simulator.jobs import Milliseconds
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.simulation import FinishedJob, SimulationResult
from kompakt_simulator.world import Stretch
from tests.support.simulator.jobs import HOUR, NETWORK, job, run

HALVES = (job(0, 0, 9 * HOUR, 2), job(1, 0, 9 * HOUR, 3))  # leave 2 GPUs of one machine and 1 of the other


def test_kompakt_takes_the_rack_when_the_wait_has_cost_what_the_machine_could_give() -> None:
    told = run("kompakt", *HALVES, job(2, 60, 1000, 3))
    assert told[2][0] == 60 + HOUR * 0.5  # first guess: an hour of work, half of which the rack would cost
    assert told[2][1] == told[2][0] + 1000 * 1.5


def test_kompakt_waits_less_for_work_that_is_declared_to_be_short() -> None:
    declared = Setting(network=NETWORK, knowledge=Knowledge.DECLARED)
    assert run("kompakt", *HALVES, job(2, 60, 1000, 3), setting=declared)[2][0] == 60 + 1000 * 0.5


def test_kompakt_asks_who_joins_though_all_others_of_its_size_have_refused_for_longer() -> None:
    told = run("kompakt", *HALVES, job(2, 60, 1000, 3), job(3, 120, 1000, 3, ratio=0.1))
    assert told[3][0] == 120 + HOUR * 0.1 < told[2][0]


def test_kompakt_takes_a_machine_at_once_and_what_the_network_does_not_slow_anywhere() -> None:
    assert run("kompakt", *HALVES, job(2, 60, 1000, 2))[2][0] == 60
    assert run("kompakt", *HALVES, job(2, 60, 1000, 3, ratio=0))[2][0] == 60


def test_kompakt_stops_a_job_only_after_two_hours_and_gives_its_gpus_to_who_caused_it() -> None:
    full = (job(0, 0, 90 * HOUR, 4), job(1, 10, 90 * HOUR, 4), job(2, 20, 50, 4))
    told = run("kompakt", *full)
    assert told[2][0] >= 2 * HOUR + 4  # two hours at least, and the checkpoint of four GPUs
    assert told[2][1] < 16 * HOUR


def test_dally_insists_on_a_machine_until_its_timer_and_starts_at_the_next_offer() -> None:
    setting = Setting(network=NETWORK, lease_s=10 * HOUR, timers=(0.2, 0.4))  # no lease ends meanwhile
    nudges = tuple(job(10 + number, number * 600, 1, 1) for number in range(20))  # arrivals offer all that is free
    told = run("dally", *HALVES, job(2, 60, 1000, 3), *nudges, setting=setting)
    assert 60 + 2 * HOUR <= told[2][0] <= 60 + 2 * HOUR + 600


def test_dally_offers_only_what_an_event_freed() -> None:
    # Job 2 ends and frees one GPU while one more has been free: four are free, but job 3 wants two and hears of one.
    setting = Setting(network=NETWORK, timers=(0, 0))
    jobs = (job(0, 0, 9 * HOUR, 4), job(1, 0, 9 * HOUR, 2), job(2, 0, 100, 1), job(3, 10, 10, 2), job(4, 500, 10, 1))
    assert run("dally", *jobs, setting=setting)[3][0] == 500  # the arrival of job 4 offers all
    assert run("las", *jobs, setting=setting)[3][0] == 100


def test_a_stopped_job_pays_restart_and_its_gpus_come_back_after_the_checkpoint() -> None:
    setting = Setting(network=NETWORK, restart_s=30, checkpoint_s_per_gpu=2)
    told = run("las", job(0, 0, 3 * HOUR, 4), job(1, 100, 50, 4), machines=1, setting=setting)
    assert told[1] == (HOUR + 8, HOUR + 58)
    assert told[0] == (0, 3 * HOUR + 58 + 30)


def test_work_since_the_last_checkpoint_is_lost_where_there_is_an_interval() -> None:
    setting = Setting(network=NETWORK, restart_s=0, checkpoint_s_per_gpu=0, checkpoint_interval_s=1000)
    told = run("las", job(0, 0, 3 * HOUR, 4), job(1, 100, 50, 4), machines=1, setting=setting)
    assert told[0][1] == 3 * HOUR + 50 + 600  # 3,600 s computed, 3,000 kept


@pytest.mark.parametrize(
    ("stretches", "words"),
    [
        ((Stretch(0, 0, 9000, GpuSet(3)), Stretch(1, 5000, 9000, GpuSet(6))), "got GPUs that another held"),
        ((Stretch(0, 0, 9000, GpuSet(1)), Stretch(1, 0, 9000, GpuSet(12))), "held 1 GPUs"),
        ((Stretch(0, 0, 9000, GpuSet(3)), Stretch(1, 0, 100, GpuSet(12))), "ended after 100 ms"),
    ],
)
def test_the_audit_names_what_is_broken(stretches: tuple[Stretch, ...], words: str) -> None:
    done = tuple(FinishedJob(job(number, 0, 4, 2), Milliseconds(0), Milliseconds(9000), GpuSet(3)) for number in (0, 1))
    assert any(words in line for line in violations_of(SimulationResult(done, (), 8, stretches=stretches)))
