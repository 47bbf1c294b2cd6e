"""Copies to host memory and back: what must live lives, what is free again is used again, and bytes come back as they were."""

import gc

import pytest
import torch

from kompakt_runtime.codec import decode, encode
from kompakt_runtime.saved.carrier import Carrier
from tests.support.runtime.tensors import normal
from tests.support.runtime.thread_lane import ThreadLane

CHUNK = 1024


@pytest.fixture
def slow():
    """A carrier whose copies begin only after a while."""
    carrier = Carrier(ThreadLane(delay=0.05), 100 * CHUNK, CHUNK)
    yield carrier
    gc.collect()
    carrier.lane.settle()  # type: ignore[attr-defined]
    carrier.release(0)
    assert carrier.lane.lost == 0  # type: ignore[attr-defined]
    assert carrier.held == 0
    assert len(carrier.home) * CHUNK == carrier.taken


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool, torch.int64, torch.complex64])
@pytest.mark.parametrize("count", [1, 3, 255, 256, 257, 1000])
def test_bytes_come_back_however_they_lie_in_chunks(dtype, count):
    carrier, x = Carrier(ThreadLane(), 100 * CHUNK, CHUNK), normal(count, dtype=dtype)
    hosted, _ = carrier.out(x)  # type: ignore[misc]
    for _ in range(2):
        again = hosted.decode()
        assert again.dtype == dtype
        assert torch.equal(again, x)
    assert hosted.nbytes == x.numel() * x.element_size()
    assert carrier.taken == -(-max(hosted.nbytes, 16) // CHUNK) * CHUNK


@pytest.mark.parametrize("kind", ["relu", "dense", "raw"])
def test_packed_copies_come_back_byte_for_byte(kind):
    x = normal(50_000).relu() if kind == "relu" else normal(50_000)
    packed = encode(x, 1e-30 if kind == "raw" else 0.1)
    assert packed.raw == (kind == "raw")
    carrier = Carrier(ThreadLane(), 1 << 20, CHUNK)
    hosted, _ = carrier.out(packed)  # type: ignore[misc]
    assert torch.equal(hosted.decode(), decode(packed))
    assert hosted.nbytes == packed.nbytes
    assert hosted.packed.outliers == packed.outliers
    assert all(part.words.numel() == part.table.numel() == 0 for part in hosted.packed.parts)


def test_what_leaves_lives_until_its_copy_is_over(slow):
    x = normal(1000)
    wanted = x.clone()
    hosted, mark = slow.out(x)
    del x
    slow.release(2)
    assert slow.held == 1
    assert not mark.over()
    assert torch.equal(hosted.decode(), wanted)


def test_no_more_than_a_few_leave_at_a_time(slow):
    marks = [slow.out(normal(10, seed=seed))[1] for seed in range(5)]
    slow.release(2)
    assert slow.held == 2
    assert [mark.over() for mark in marks[:3]] == [True] * 3


def test_memory_of_another_stream_is_waited_for_only_by_the_host(slow):
    _, mark = slow.out(normal(10))
    slow.lane.name = "two"
    slow.release(0)
    assert slow.held == 1, "this stream's waiting says nothing about that one's memory"
    mark.wait()
    slow.release(0)
    assert slow.held == 0


def test_who_reads_waits_for_the_copy(slow):
    hosted, _ = slow.out(normal(500))
    hosted.arrival = slow.back(hosted)
    assert not hosted.arrival.mark.over()
    assert torch.equal(hosted.decode(), normal(500))
    assert slow.late == 0


def test_host_memory_is_used_again_while_a_copy_still_reads_it(slow):
    first, _ = slow.out(normal(200, seed=1))
    coming = slow.back(first)
    del first
    second, _ = slow.out(normal(200, seed=2))
    assert slow.taken == CHUNK
    coming.mark.wait()
    assert torch.equal(coming.sections[0], normal(200, seed=1))
    assert torch.equal(second.decode(), normal(200, seed=2))


def test_what_nobody_wants_any_more_lives_until_its_copy_is_over(slow):
    hosted, _ = slow.out(normal(200))
    hosted.arrival = slow.back(hosted)
    del hosted
    slow.release(2)
    assert slow.held == 2


def test_beyond_its_budget_nothing_goes():
    carrier = Carrier(ThreadLane(), 2 * CHUNK, CHUNK)
    first = carrier.out(normal(300))
    assert first is not None
    assert carrier.out(normal(10)) is None
    del first
    assert carrier.out(normal(10)) is not None
    assert carrier.taken == 2 * CHUNK


def test_a_lane_that_has_no_memory_takes_none():
    carrier = Carrier(ThreadLane(), 10 * CHUNK, CHUNK)
    carrier.lane.chunk = lambda nbytes: 1 / 0
    with pytest.raises(ZeroDivisionError):
        carrier.out(normal(300))
    assert carrier.taken == 0
