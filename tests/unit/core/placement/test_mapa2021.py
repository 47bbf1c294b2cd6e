"""MAPA's published policy, for comparison: what it takes and where it stalls."""

import pytest

from kompakt_core.ids import indices_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.placement.choose import choose
from kompakt_core.placement.mapa2021 import EMPTY, effective_bandwidth, mapa2021
from kompakt_core.placement.model import Choice, GpuRequest, Reason, Rejection
from kompakt_core.topology.machines import machine

DGX = machine("dgx1-v100")
SENSITIVE = GpuRequest(Pattern.RING, sensitive=True, measure=Measure.SUM)
INSENSITIVE = GpuRequest(Pattern.RING, measure=Measure.SUM)


@pytest.mark.parametrize(("size", "masks", "blocked"), [(2, 247, 12), (3, 219, 34)])
def test_it_blocks_sensitive_jobs_that_fit(size: int, masks: int, blocked: int) -> None:
    fitting = [free for free in range(256) if free.bit_count() >= size]
    refused = [free for free in fitting if isinstance(mapa2021(DGX, free, size, SENSITIVE), Rejection)]
    assert (len(fitting), len(refused)) == (masks, blocked)
    assert {mapa2021(DGX, free, size, SENSITIVE).reason for free in refused} == {Reason.MAPA_BLOCKED}  # type: ignore[union-attr]
    assert all(isinstance(choose(DGX, free, size, SENSITIVE), Choice) for free in refused), "ours places every one of them"


@pytest.mark.parametrize(
    ("size", "worse", "masks", "ratio"),
    [(2, 0, 247, 1.0), (3, 24, 219, 0.909), (4, 14, 163, 0.781), (5, 17, 93, 0.762), (6, 9, 37, 0.855)],
)
def test_the_sets_it_takes_have_slower_rings_than_the_best(size: int, worse: int, masks: int, ratio: float) -> None:
    shares = []
    for free in (free for free in range(256) if free.bit_count() >= size):
        taken, best = mapa2021(DGX, free, size, SENSITIVE), choose(DGX, free, size, SENSITIVE)
        assert isinstance(best, Choice)
        if isinstance(taken, Choice):
            mapa_ring = _best_ring(taken.mask)
            shares.append(mapa_ring / _best_ring(best.mask))
    assert sum(share < 1 for share in shares) == worse
    assert min(shares) == pytest.approx(ratio, abs=0.0006)
    assert len(shares) <= masks


def _best_ring(mask: int) -> float:
    """GB/s of the best ring with PCIe links counted 10, as MAPA does."""
    from kompakt_core.placement.mapa2021 import _rings

    return _rings(DGX.shared)[mask][1]


def test_the_prediction_is_not_monotone() -> None:
    assert effective_bandwidth(0, 3, 2) > effective_bandwidth(4, 0, 1), "three singles beat four doubles"
    assert effective_bandwidth(0, 3, 3) > effective_bandwidth(5, 1, 0)
    assert effective_bandwidth(0, 4, 4) > effective_bandwidth(8, 0, 0)
    assert effective_bandwidth(0, 0, 0) == EMPTY > 0


def test_a_single_gpu_is_not_placed_where_no_nvlink_would_be_left() -> None:
    refused = mapa2021(DGX, 0b1000_0001, 1, INSENSITIVE)
    assert refused == Rejection(Reason.MAPA_BLOCKED, have=2, need=1)
    assert isinstance(choose(DGX, 0b1000_0001, 1, INSENSITIVE), Choice)


def test_too_few_free_gpus_and_large_machines_are_refused() -> None:
    assert mapa2021(DGX, 0b1, 2, SENSITIVE) == Rejection(Reason.NOT_ENOUGH_GPUS, have=1, need=2)
    large = machine("dgx2-16xv100")
    assert mapa2021(large, large.all_gpus, 2, SENSITIVE) == Rejection(Reason.TOO_MANY_GPUS, have=16, need=8, detail="mapa2021")


def test_an_insensitive_job_leaves_the_most_nvlink() -> None:
    taken = mapa2021(DGX, 0b1111, 2, INSENSITIVE)
    assert isinstance(taken, Choice)
    assert indices_of(taken.mask) == (0, 3), "1-2 stays, a double link"
