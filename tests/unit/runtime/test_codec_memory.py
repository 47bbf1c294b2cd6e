"""Packing and unpacking need little memory beside the tensor: live bytes from the allocator's own events."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.profiler import profile

from kompakt_runtime.codec import decode, encode, select

A_FEW = 5 << 19  # bytes that a small tensor may cost


def peak(action: Callable[[], object]) -> int:
    """Highest sum of allocations less releases while the action runs."""
    with profile(profile_memory=True) as recorded:
        kept = action()
    live = highest = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            highest = max(highest, live)
    del kept
    return highest


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_working_memory_is_bounded(dtype, seed):
    x = torch.randn(1 << 22, generator=torch.Generator().manual_seed(0)).relu().to(dtype)
    packed = encode(x, 0.1, seed=seed)
    packing = peak(lambda: encode(x, 0.1, seed=seed)) - packed.nbytes
    unpacking = peak(lambda: decode(packed)) - x.numel() * x.element_size()
    print(f"{dtype}, seed {seed}: {packing / 2**20:.1f} MiB to pack, {unpacking / 2**20:.1f} MiB to unpack")
    assert packing < A_FEW
    assert unpacking < A_FEW


@pytest.mark.parametrize("bound", [1e-4, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_working_memory_is_what_the_account_of_held_bytes_says(dtype, bound):
    x = torch.randn(1 << 17, generator=torch.Generator().manual_seed(0)).to(dtype)
    taken = []
    for t in (x, x.relu()):  # tensors with zeros take more to pack, and less to unpack
        packed = encode(t, bound)
        taken.append((peak(partial(encode, t, bound)) - packed.nbytes, peak(partial(decode, packed)) - t.nbytes))
    for most, of in zip(map(max, *taken), (select.PACKING, select.UNPACKING), strict=True):
        said = select.working_bytes(x, x.nbytes, of)
        assert said / 2 < most <= said


def test_parts_grow_with_the_tensor_and_stay_within_two_percent_of_16_bit_types():
    bytes_an_element = A_FEW / (1 << select.SMALLEST)
    for exponent in range(10, 40):
        part = select.elements_at_once(1 << exponent)
        assert part * bytes_an_element <= max(A_FEW, 0.02 * 2 * (1 << exponent))
