"""What the one-pass kernels cost an element on an H200, read from their machine code; `python -m benchmarks.codec --static`."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sass import ISSUED, UNITS, Count, blocks, path
from kompakt_runtime.codec.scales import MOST_BITS

# NVIDIA's H200 datasheet: 4.8 TB/s. Multiprocessors and boost clock: H100 whitepaper, SXM5 (132, 1.98 GHz).
BANDWIDTH, PROCESSORS, CLOCK = 4.8e12, 132, 1.98e9
LANE_ELEMENTS = 64
NAMES = {0: "float32", 1: "float16", 2: "bfloat16"}
ITEM = {0: 4, 1: 2, 2: 2}
WIDTH = 6
BARS = {"pack_tiles": 25, "unpack_tiles": 12}


@dataclass(frozen=True)
class Compiled:
    """The disassembly of a kernel, and what it needs of a multiprocessor."""

    text: str
    registers: int
    spilled: int


def compiled(name: str, kind: int, **fewer: int) -> Compiled:
    """For compute capability 9.0."""
    import triton

    return _disassembled(made_for(name, kind, 90, **fewer).asm["cubin"], Path(triton.knobs.nvidia.nvdisasm.path))


def made_for(name: str, kind: int, capability: int, **fewer: int) -> Any:
    """What Triton makes of a kernel, with the options that `one_pass.py` launches with but for `fewer` widths; needs no GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kompakt_runtime.codec.one_pass import OPTIONS
    from kompakt_runtime.codec.pack_kernels import pack_tiles
    from kompakt_runtime.codec.unpack_kernels import unpack_tiles

    kernel = {"pack_tiles": pack_tiles, "unpack_tiles": unpack_tiles}[name]
    constants = {"KIND": kind, "FEWEST": OPTIONS["FEWEST"], "WIDEST": OPTIONS["WIDEST"], **fewer}
    element = "*i32" if kind == 0 else "*i16"
    single = {"rest": element, "rest_out": element, "elements": element}
    words = dict.fromkeys(("x", "scales", "out", "packed"), "*i32")
    signature = {one: "constexpr" if one in constants else {**words, **single}.get(one, "i32") for one in kernel.arg_names}
    aligned = [one for one in kernel.arg_names if one in (*words, "start")]
    attributes = {(kernel.arg_names.index(one),): [["tt.divisibility", 16]] for one in aligned}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    options = {key: OPTIONS[key] for key in ("num_warps", "enable_fp_fusion")}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def _disassembled(cubin: bytes, nvdisasm: Path) -> Compiled:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout
        cuobjdump = nvdisasm.with_name("cuobjdump")
        usage = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return Compiled(text, found["REG"], found["STACK"] + found["LOCAL"])


def count(kind: int, name: str, width: int = WIDTH) -> Count:
    """Along the path of a full tile of codes of this width without elements that have no code.

    The packing kernel has the same stores for all widths, so nothing tells its branches apart: what is counted there is the
    kernel made for this width alone. The choice among 14 widths adds four comparisons and jumps, 0.13 an element.
    """
    if name == "pack_tiles":
        alone = compiled(name, kind, FEWEST=width, WIDEST=width)
        return path(blocks(alone.text), "STG", ((MOST_BITS + 1) // 2, 1), LANE_ELEMENTS)
    return path(blocks(compiled(name, kind).text), "LDG", (width // 2, width % 2), LANE_ELEMENTS)


def rate(slots: float, item: int) -> float:
    """TB/s of unpacked bytes that a number of issue slots an element allows."""
    return PROCESSORS * ISSUED * CLOCK / slots * item / 1e12


def memory_rate(item: int, width: int = WIDTH) -> float:
    """TB/s of unpacked bytes where every byte is moved once: the element, its code, the tile's two words."""
    return BANDWIDTH / (item + width / 8 + 8 / 2048) * item / 1e12


HEAD = ("kernel", "type", "registers", "spilled", *UNITS, "issued", "weighted", "bar", "busiest", "it allows", "memory allows")


def rows(kinds: tuple[int, ...] = (2, 1, 0)) -> Iterator[str]:
    """A table in Markdown; each row takes half a minute to compile."""
    yield f"A full tile of {WIDTH}-bit codes without outliers, sm_90: instructions an element; at most TB/s of unpacked bytes"
    yield ""
    yield _line(HEAD)
    yield _line(["---"] * len(HEAD))
    for name in BARS:
        for kind in kinds:
            made = compiled(name, kind)
            yield _line(_cells(name, kind, made, count(kind, name)))


def _cells(name: str, kind: int, made: Compiled, counted: Count) -> list[str]:
    need, unit = max(counted.limit, (counted.weighted, "weighted"))
    numbers = [*(counted.of(one) for one in UNITS), counted.issued, counted.weighted]
    bar = f"{BARS[name]}" if counted.weighted <= BARS[name] else f"{BARS[name]}, missed"
    rates = [f"{rate(need, ITEM[kind]):.2f}", f"{memory_rate(ITEM[kind]):.2f}"]
    return [name, NAMES[kind], str(made.registers), str(made.spilled), *(f"{one:.2f}" for one in numbers), bar, unit, *rates]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
