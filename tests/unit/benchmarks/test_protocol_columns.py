"""The columns of the protocol: generated traces have the load they were asked for, and parts do not mix."""

import math
import random
from statistics import fmean

import pytest

from benchmarks.policies import CLUSTERS
from benchmarks.protocol import columns
from benchmarks.protocol.columns import COLUMNS, GENERATED_SEEDS, HELD_OUT, HELD_OUT_SEED, POOL, Part, chosen
from benchmarks.protocol.generator import WantedTrace, fitted, generated, load_of
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.traces.reading import BUILT_IN, load_trace

MADE = [column for column in COLUMNS if column.part is Part.GENERATED]
SOURCE = fitted(load_trace("muri-cluster").jobs)


def submitted(gaps: list[float]) -> list[TraceJob]:
    at, jobs = 0.0, []
    for number, gap in enumerate(gaps):
        at += gap
        jobs.append(TraceJob(number, Milliseconds(round(at)), Milliseconds(60_000), 1))
    return jobs


@pytest.mark.parametrize("column", MADE, ids=[column.name for column in MADE])
def test_a_generated_trace_has_the_load_it_was_asked_for(column: columns.ProtocolColumn) -> None:
    shape = read_shape(column.cluster)
    for seed in column.seeds(quick=True):
        jobs = column.trace(seed)
        assert len(jobs) == column.jobs
        assert load_of(jobs, shape.gpus) == pytest.approx(column.load, rel=1e-3)
        assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)
        assert max(job.gpus for job in jobs) <= shape.gpus


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    wanted = WantedTrace(jobs=50, cluster_gpus=128, load=0.9)
    assert generated(SOURCE, wanted, 7) == generated(SOURCE, wanted, 7)
    assert generated(SOURCE, wanted, 7) != generated(SOURCE, wanted, 8)


def test_draws_are_the_same_on_every_machine() -> None:
    jobs = generated(SOURCE, WantedTrace(jobs=3, cluster_gpus=128, load=0.9), 7)
    assert [(job.submit, job.duration, job.gpus, job.model) for job in jobs] == [
        (0, 164_737_780, 8, "a2c"),
        (22_070, 16_015_598, 4, "resnet18"),
        (21_094_328, 131_012_741, 8, "gpt2"),
    ]


def test_drawn_jobs_are_like_those_of_the_source() -> None:
    source = load_trace("muri-cluster").jobs
    drawn = generated(SOURCE, WantedTrace(jobs=20_000, cluster_gpus=128, load=0.9), 1)
    for gpus in (1, 8, 32):
        share, wanted = (sum(job.gpus == gpus for job in jobs) / len(jobs) for jobs in (drawn, source))
        assert share == pytest.approx(wanted, abs=0.01)
    longest = max(job.duration for job in source)
    assert max(job.duration for job in drawn) <= longest
    logs = [fmean(math.log(max(job.duration, 1000)) for job in jobs if job.gpus == 8) for jobs in (drawn, source)]
    assert logs[0] == pytest.approx(logs[1], abs=0.3)
    assert {job.model for job in drawn} == {job.model for job in source}


@pytest.mark.parametrize("shape", [0.2, 1.0, 5.0])
def test_bursts_of_submissions_are_found_again(shape: float) -> None:
    chance = random.Random(1)
    found = fitted(submitted([chance.gammavariate(shape, 1e9 / shape) for _ in range(5000)]))
    assert found.burstiness == pytest.approx(shape, rel=0.1)


def test_gangs_grow_by_their_factor() -> None:
    plain, grown = (generated(SOURCE, WantedTrace(50, 512, 0.9, factor), 7) for factor in (1, 4))
    assert [job.gpus for job in grown] == [4 * job.gpus for job in plain]


@pytest.mark.parametrize(
    ("field", "value"), [("jobs", 1), ("load", 0), ("load", math.nan), ("gang_factor", 0), ("gang_factor", 10_000)]
)
def test_what_cannot_be_drawn_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        WantedTrace(**{"jobs": 50, "cluster_gpus": 128, "load": 0.9, field: value})  # type: ignore[arg-type]


def test_jobs_larger_than_the_cluster_are_refused() -> None:
    with pytest.raises(InvalidInput, match="jobs of 32 GPUs on a cluster of 16"):
        generated(SOURCE, WantedTrace(jobs=50, cluster_gpus=16, load=0.9), 7)


@pytest.mark.parametrize("gaps", [[], [1000.0] * 5, [0.0] * 50])
def test_a_trace_that_is_too_short_or_all_at_once_is_not_fitted(gaps: list[float]) -> None:
    with pytest.raises(InvalidInput, match="too few to fit, or all at once"):
        fitted(submitted(gaps))


def test_thirty_columns_of_three_parts_cover_the_range() -> None:
    assert len(COLUMNS) == 30 == len({column.name for column in COLUMNS})
    assert {column.part for column in COLUMNS} == set(Part)
    assert {column.load for column in MADE} >= {0.5, 1.2}
    assert {read_shape(column.cluster).gpus for column in MADE} >= {64, 4096}
    outer = [column.network().levels[Level.CLUSTER] for column in MADE]
    assert min(outer) == 4
    assert max(outer) >= 32


def test_every_job_that_is_read_fits_its_cluster() -> None:
    for column in COLUMNS:
        if column.part is not Part.GENERATED:
            assert max(job.gpus for job in column.trace(0)) <= read_shape(column.cluster).gpus, column.name


def test_held_out_traces_are_drawn_by_the_seed_and_none_is_seen() -> None:
    assert tuple(sorted(random.Random(HELD_OUT_SEED).sample(POOL, 3))) == HELD_OUT == ("103959", "2869ce", "7f04ca")
    seen = {column.source for column in COLUMNS if column.part is Part.SEEN}
    assert seen == set(CLUSTERS)
    assert not [name for name in (*BUILT_IN, *CLUSTERS) for cluster in POOL if cluster in name]


def test_no_held_out_trace_is_one_of_the_simulators() -> None:
    known = {load_trace(name).jobs for name in BUILT_IN}
    for column in COLUMNS:
        if column.part is Part.HELD_OUT:
            assert column.trace(0) not in known


def test_seeds_of_generated_traces_are_twenty_and_their_own() -> None:
    assert len(set(GENERATED_SEEDS)) == 20
    others = {seed for column in COLUMNS if column.part is not Part.GENERATED for seed in column.seeds()}
    assert not set(GENERATED_SEEDS) & (others | {HELD_OUT_SEED})
    assert all(column.seeds() == GENERATED_SEEDS and column.seeds(quick=True) == GENERATED_SEEDS[:3] for column in MADE)


def test_an_unknown_column_is_refused_with_those_that_there_are() -> None:
    assert [column.name for column in chosen("made-64-load50-x4,muri-cluster-flat")] == ["muri-cluster-flat", "made-64-load50-x4"]
    with pytest.raises(InvalidInput, match=r"column 'muri'; expected some of: muri-cluster-flat, "):
        chosen("muri-cluster-flat,muri")
