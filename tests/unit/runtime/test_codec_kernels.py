"""The Triton kernels: in the interpreter their bytes are the reference's, and compiled for GPUs they hold no fused or
approximate arithmetic. Neither proves the bytes on a GPU; tests/gpu does that where there is one.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kompakt_runtime.codec import kernels


def test_interpreted_kernels_write_the_bytes_of_the_reference():
    """Odd lengths, every type, both roundings, awkward numbers, too little room: 45 checks in one process."""
    command = [sys.executable, "-m", "pytest", "-q", str(Path(__file__).with_name("interpreted_kernels.py"))]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "45 passed" in done.stdout


POINTERS = {
    "x": "i", "out": "i", "kept": "i", "scratch": "i32", "bitmap": "u8", "heads": "u8", "table": "i32", "missed": "i32",
    "words": "i32", "block_starts": "i64", "word_starts": "i64", "outlier_starts": "i64", "places": "i64",
}  # fmt: skip
FLOATS = {"bound", "step", "inverse", "smallest"}


def ptx(kernel, capability: int, constants: dict[str, int]) -> str:
    """The kernel compiled for compute capability 8.0 or 9.0, with the options it is launched with."""
    bits = "*i32" if constants["KIND"] == 0 else "*i16"
    signature = {}
    for name in kernel.arg_names:
        pointer = POINTERS.get(name)
        number = "fp32" if name in FLOATS else "i64" if name == "first" else "i32"
        signature[name] = "constexpr" if name in constants else (bits if pointer == "i" else f"*{pointer}" if pointer else number)
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"enable_fp_fusion": False})
    return compiled.asm["ptx"]


VARIANTS = [
    ("encode_tiles", {"KIND": 0, "STOCHASTIC": False, "WRITE": 0}),
    ("encode_tiles", {"KIND": 2, "STOCHASTIC": False, "WRITE": 1}),
    ("encode_tiles", {"KIND": 1, "STOCHASTIC": True, "WRITE": 1}),
    ("decode_tiles", {"KIND": 0, "STOCHASTIC": True, "ZEROS": True}),
    ("decode_tiles", {"KIND": 2, "STOCHASTIC": False, "ZEROS": True}),
]
# Rounding down flushes subnormal numbers, and the floor of a small magnitude is 0 anyway.
FLOOR = "cvt.rmi.ftz.f32.f32"
FORBIDDEN = re.compile(
    r"\b(fma\.|mad\.\w*\.?f|div\.full|div\.approx|rcp\.approx|ex2\.|lg2\.|sqrt\.approx|atom\.|red\.|[\w.]*\.ftz)"
)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path_factory.mktemp("triton")))


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("name", "constants"), VARIANTS, ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value
)
def test_compiled_kernels_hold_no_fused_or_approximate_arithmetic_and_no_atomics(name, constants, capability):
    code = ptx(getattr(kernels, name), capability, constants)
    assert f".target sm_{capability}" in code
    assert not FORBIDDEN.findall(code.replace(FLOOR, "floor"))
    assert "mul" in code


def test_the_search_would_find_them():
    @triton.jit
    def fused(x, KIND: triton.language.constexpr):
        value = triton.language.load(x).to(triton.language.float32, bitcast=True)
        triton.language.store(x, (value * value + value / 3.0).to(triton.language.int32, bitcast=True))

    source = ASTSource(fn=fused, signature={"x": "*i32", "KIND": "constexpr"}, constexprs={"KIND": 0})
    found = FORBIDDEN.findall(
        triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"enable_fp_fusion": True}).asm["ptx"]
    )
    assert "fma." in found
    assert {"div.full", "div.approx"} & set(found)
