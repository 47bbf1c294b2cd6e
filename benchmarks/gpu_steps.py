"""What packing costs a training step on a GPU, in time and memory; `python -m benchmarks.gpu_steps`.

The same steps are trained plainly and packed, one after the other, from the same weights. The steps in which bounds are found
come before those that are timed; each of these ends when the device has done it.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kompakt_runtime.config import ACTIVATION_GRADIENTS, RuntimeConfig
from kompakt_runtime.session import Session

WARM_UP = 12


@dataclass(frozen=True)
class Case:
    """`model` is made after the random state is set; `batch`: its input."""

    model: Callable[[], Any]
    batch: Callable[[], Any]


@dataclass(frozen=True)
class Steps:
    """Seconds of each step, the most bytes that were allocated, how much smaller what was kept is, and what passed through."""

    seconds: list[float]
    peak: int
    ratio: float
    raw: dict[str, int]


def gpt(width: int, blocks: int, sequences: int, tokens: int, device: Any, dtype: Any) -> Case:
    """Blocks of attention and a GELU, norms before them, without dropout."""

    def model() -> Any:
        heads = max(1, width // 128)
        make = nn.TransformerEncoderLayer
        layers = [make(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(blocks)]
        return nn.Sequential(*layers).to(device=device, dtype=dtype)

    return Case(model, lambda: torch.randn(sequences, tokens, width, device=device, dtype=dtype))


def resnet50(images: int, device: Any) -> Case:
    """timm's, channels last, bfloat16."""

    def model() -> Any:
        import timm  # type: ignore[import-not-found, unused-ignore]

        return timm.create_model("resnet50").to(device=device, dtype=torch.bfloat16, memory_format=torch.channels_last)

    def batch() -> Any:
        x = torch.randn(images, 3, 224, 224, device=device, dtype=torch.bfloat16)
        return x.to(memory_format=torch.channels_last)

    return Case(model, batch)


def trained(case: Case, config: RuntimeConfig | None, steps: int, device: Any) -> Steps:
    """The last `steps`, after WARM_UP more."""
    torch.manual_seed(0)
    model, x = case.model(), case.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    session = Session(config) if config is not None else None
    if session is not None:
        session.start()
    try:
        for _ in range(WARM_UP):
            step(model, x, optimizer)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = [timed(lambda: step(model, x, optimizer), device) for _ in range(steps)]
    finally:
        if session is not None:
            session.stop()
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    figures = session.figures if session is not None else None
    ratio = figures.plain_bytes / max(figures.saved_bytes, 1) if figures is not None else 1.0
    return Steps(seconds, peak, ratio, dict(figures.raw) if figures is not None else {})


def step(model: Any, x: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
    optimizer.step()


def timed(action: Callable[[], Any], device: Any) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def row(name: str, plain: Steps, packed: Steps) -> str:
    before, after = (statistics.median(steps.seconds) for steps in (plain, packed))
    return (
        f"{name}: {before * 1e3:.1f} -> {after * 1e3:.1f} ms a step ({after / before - 1:+.1%}), "
        f"peak {plain.peak / 1e9:.2f} -> {packed.peak / 1e9:.2f} GB, saved bytes {packed.ratio:.2f} times smaller; "
        f"passed through: {packed.raw}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    device = torch.device("cuda", 0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; median of {arguments.steps} steps")
    cases = {
        "GPT, 4096 wide, 4 blocks, 8 x 2048 tokens, bfloat16": gpt(4096, 4, 8, 2048, device, torch.bfloat16),
        "ResNet-50, 256 images, bfloat16": resnet50(256, device),
    }
    for name, case in cases.items():
        plain = trained(case, None, arguments.steps, device)
        for gradients in ACTIVATION_GRADIENTS:
            packed = trained(case, RuntimeConfig("ErrorBounded", activation_gradients=gradients), arguments.steps, device)
            print(row(f"{name}, activation gradients {gradients}", plain, packed), flush=True)


if __name__ == "__main__":
    main()
