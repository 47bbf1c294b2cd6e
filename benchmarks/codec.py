"""How fast the codec packs and unpacks, beside a plain copy of the same tensor in the same run; `python -m benchmarks.codec`.

Rates count the bytes of the unpacked tensor once, in both directions and for the copy. Rounds are interleaved: copy, pack,
unpack, then again, so that a busy moment hits all three. On a CPU the processor time of the one thread counts; on a GPU
events on the stream do, and packing is without waiting: room set aside. "per copy" is the median over rounds of each
round's own quotient.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import static_codec
from kompakt_runtime import codec
from kompakt_runtime.codec.select import encoder
from kompakt_runtime.saved.lossless import two_valued
from kompakt_runtime.saved.replay import Replays

Tensor = Any
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Row:
    """Seconds of each round, and the packed size."""

    copy: list[float]
    pack: list[float]
    unpack: list[float]
    nbytes: int
    packed: int


def activations(kind: str, dtype: Any, nbytes: int, device: Any) -> Tensor:
    """Standard normal numbers, for "relu" with the negative half set to zero."""
    count = nbytes // torch.empty(0, dtype=dtype).element_size()
    x = torch.randn(count, generator=torch.Generator().manual_seed(0)).to(device=device, dtype=dtype)
    return x.relu() if kind == "relu" else x


def seconds(action: Callable[[], Any], device: Any) -> float:
    if device.type != "cuda":
        start = time.thread_time()
        action()
        return time.thread_time() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    action()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def measure(x: Tensor, bound: float, rounds: int) -> Row:
    """Rounds of copy, pack, unpack, after one that does not count."""
    packed = codec.encode(x, bound)
    target, room = torch.empty_like(x), codec.Room.of(packed)

    def pack() -> Any:
        return codec.begin(x, bound, room) if x.device.type == "cuda" else codec.encode(x, bound)

    actions = (lambda: target.copy_(x), pack, lambda: codec.decode(packed))
    times = [[seconds(action, x.device) for action in actions] for _ in range(rounds + 1)][1:]
    copy, packing, unpacking = (list(column) for column in zip(*times, strict=True))
    return Row(copy, packing, unpacking, x.numel() * x.element_size(), packed.nbytes)


def masks(elements: int, rounds: int) -> dict[str, Row]:
    """Dropout's mask of float32 numbers on a CPU: a bit an element, and drawn again, after the proof that the same bits come."""
    module, like = torch.nn.Dropout(0.1), torch.ones(elements)
    state = torch.get_rng_state()
    mask = module(like)
    target, replays = torch.empty_like(mask), Replays()
    ways: dict[str, Callable[[], Any]] = {
        "a bit an element": lambda: two_valued(mask),
        "drawn again": lambda: replays.of("", module, mask, mask, state),
    }
    rows = {name: Row([], [], [], elements * 4, way().nbytes) for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            copy, row = way(), rows[name]
            for times, action in ((row.copy, lambda: target.copy_(mask)), (row.pack, way), (row.unpack, copy.decode)):
                times.append(seconds(action, mask.device))
    return rows


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:8.3f} ({low:.3f}-{high:.3f})"


def lines(name: str, row: Row) -> list[str]:
    """Median and quartiles of GB/s, and the quotients to the copy of the same round."""
    found = [f"{name}: {row.nbytes / row.packed:.2f} times smaller"]
    for what, times in (("copy", row.copy), ("pack", row.pack), ("unpack", row.unpack)):
        rates = [row.nbytes / one / 1e9 for one in times]
        share = [copy / one for copy, one in zip(row.copy, times, strict=True)]
        found.append(f"  {what:7s} {spread(rates)} GB/s   per copy {spread(share)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--megabytes", type=int, nargs="+", help="sizes of the tensors (default: 16; on a GPU also 1024)")
    parser.add_argument("--bound", type=float, default=0.1, help="error bound in standard deviations of the data")
    parser.add_argument("--masks", action="store_true", help="instead: masks of dropout on a CPU, kept in bits or drawn again")
    parser.add_argument(
        "--static", action="store_true", help="instead: instructions of the one-pass kernels for sm_90; needs no GPU"
    )
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    if arguments.static:
        for line in static_codec.rows():
            print(line, flush=True)
        return
    torch.set_num_threads(1)
    device = torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    if arguments.masks:
        for name, row in masks(1 << 22, arguments.rounds).items():
            print(*lines(f"mask of dropout, 16 MiB, {name}, {row.packed} bytes", row), sep="\n")
        return
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()}, one thread"
    works = encoder(device, torch.float32)
    print(f"{machine}, torch {torch.__version__}, encoder {works.name} {works.reason}; bound {arguments.bound}")
    print(f"{arguments.rounds} rounds, median (quartiles); rates count the bytes of the unpacked tensor once")
    for megabytes in arguments.megabytes or ([16, 1024] if device.type == "cuda" else [16]):
        for kind in ("relu", "normal"):
            for name, dtype in DTYPES.items():
                row = measure(activations(kind, dtype, megabytes << 20, device), arguments.bound, arguments.rounds)
                print(*lines(f"{kind} {name} {megabytes} MiB", row), sep="\n")


if __name__ == "__main__":
    main()
