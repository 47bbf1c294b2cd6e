"""The one-pass codec: steps that keep the bound for every number, kernels in the interpreter, and their machine code. That does
not prove what a GPU does; tests/gpu does that where there is one.
"""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import static_codec
from kompakt_runtime.codec import one_pass
from kompakt_runtime.codec import scales as module
from kompakt_runtime.codec.scales import codes, middles, scales
from tests.support.turns import in_turn

SHORT = [torch.float16, torch.bfloat16]


@in_turn(0)
@pytest.mark.timeout(900)
def test_interpreted_kernels_give_back_what_the_reference_says():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", str(Path(__file__).with_name("interpreted_one_pass.py"))]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) == 112


@pytest.mark.parametrize("bound", [7.0, 0.3, 0.1, 0.031, 0.01, 0.006])
@pytest.mark.parametrize("dtype", SHORT)
def test_every_number_with_a_code_keeps_the_bound(dtype, bound):
    patterns = torch.arange(1 << 15, dtype=torch.int32)
    numbers = patterns.to(torch.int16).view(dtype)
    for bits, row in enumerate(scales(dtype, bound), 1):
        inside = patterns < row.first_outside
        magnitude = numbers[inside].float()
        code = codes(magnitude, row.inverse)
        back = middles(code, row.step, dtype)
        assert int(code.max()) < 1 << bits
        assert bool(((back.double() - magnitude.double()).abs() <= bound).all())
        assert torch.equal(back == 0, magnitude == 0)


@settings(deadline=None)
@given(st.floats(0.5, 1, exclude_max=True), st.integers(-64, 64), st.sampled_from(SHORT))
def test_steps_scale_with_the_bound_and_are_those_found_for_it(share, exponent, dtype):
    """Of bfloat16 they are found once for all powers of two."""
    bound = math.ldexp(share, exponent)
    kept = math.ldexp(math.floor(math.ldexp(share, 7)), exponent - 7)
    assert bound * (1 - 2**-6) < kept <= bound
    assert module._scales(dtype, kept) == scales(dtype, bound)


@pytest.mark.parametrize("bound", [0.3, 1e-3, 3e-6])
def test_float32_keeps_the_bound_at_the_edges_of_bins(bound):
    for bits, row in enumerate(scales(torch.float32, bound), 1):
        edges = torch.arange(1, min(1 << bits, 4000), dtype=torch.float64) * row.step
        near = torch.cat([edges * (1 + share) for share in (-1e-2, -4e-3, -1e-5, 0, 1e-5, 4e-3)]).float()
        near = near[(near.view(torch.int32) < row.first_outside) & (near > 0)]
        back = middles(codes(near, row.inverse), row.step, torch.float32)
        assert bool(((back.double() - near.double()).abs() <= bound).all())


@pytest.mark.parametrize("dtype", SHORT)
def test_widths_reach_farther_one_after_another(dtype):
    reach = [row.first_outside for row in scales(dtype, 0.1)]
    assert reach == sorted(reach)
    assert len(set(reach)) > 6
    assert scales(torch.float32, 0.1)[-1].first_outside > reach[0]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path_factory.mktemp("triton")))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "programs"), [("pack_tiles", one_pass.PACKING[2]), ("unpack_tiles", one_pass.UNPACKING)])
def test_machine_code_of_bfloat16_keeps_its_budget(name, programs):
    made = static_codec.compiled(name, 2)
    counted = static_codec.count(2, name)
    assert made.spilled == 0
    assert made.registers * 32 * programs <= 1 << 16
    assert 1 < counted.weighted <= static_codec.BARS[name]
    elements = 16 * 64 // 128
    # Three chunks hold codes of 6 bits; packing has a store for each that the widest needs, and only those move that are due.
    wanted = {"LDG": elements, "STG": 7} if name == "pack_tiles" else {"LDG": 3, "STG": elements}
    assert {kind: counted.wide(kind) for kind in ("LDG", "STG")} == wanted


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("name", ["pack_tiles", "unpack_tiles"])
def test_compiled_kernels_hold_no_approximate_arithmetic(name, kind):
    code = static_codec.made_for(name, kind, 80, FEWEST=6, WIDEST=6).asm["ptx"]
    assert ".target sm_80" in code
    assert not re.findall(r"\b(?:div\.full|div\.approx|rcp\.approx)|\.ftz\b", code)
    # Multiply and add are one operation only where the product is exact: for 16-bit types.
    assert bool(re.search(r"\bfma\.", code)) == (kind != 0 and name == "pack_tiles")
