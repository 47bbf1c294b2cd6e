"""Peak of live bytes in one training step: plain, checkpointing, lossless, error-bounded; `python -m benchmarks.memory`.

Networks with norms are measured with their inputs bounded too (`activationGradients: Bounded`).

On CPUs the peak is the largest rise of the running sum of the allocator's own events (allocations less releases) in the step, on
GPUs `max_memory_allocated` less what was there before; gradients and temporaries count, the weights themselves do not. Before
the measured step come as many as bounds need. Below each peak: who holds what was saved for the backward pass.
"""

import argparse
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint_sequential

from kompakt_runtime.config import ActivationGradients, Mode, RuntimeConfig
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.session import Session

Tensor = Any
STEPS = 4  # the first with bounds is the fourth


@dataclass(frozen=True)
class Case:
    """A model, its input's shape, into how many parts checkpointing cuts it, and whether it has nonlinear inputs to pack."""

    model: Callable[[], nn.Sequential]
    shape: tuple[int, ...]
    parts: int
    nonlinear: bool = False


def block(inputs: int, outputs: int, norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=not norm)]
    return [*layers, nn.BatchNorm2d(outputs), nn.ReLU()] if norm else [*layers, nn.ReLU()]


def convolutions(norm: bool) -> nn.Sequential:
    """Sixteen 3x3 convolutions in three stages with max-pools between, as in a VGG."""
    layers = block(3, 32, norm)
    for width, after in ((32, 64), (64, 128), (128, 128)):
        layers += [layer for _ in range(4) for layer in block(width, width, norm)] + block(width, after, norm)
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def perceptron() -> nn.Sequential:
    layers = [part for _ in range(6) for part in (nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(512, 10))


CASES = {
    "convolutions": Case(lambda: convolutions(False), (16, 3, 32, 32), 4),
    "convolutions + batch norm": Case(lambda: convolutions(True), (16, 3, 32, 32), 4, nonlinear=True),
    "perceptron with dropout": Case(perceptron, (2048, 512), 4),
}


@contextmanager
def compressed(mode: Mode | None, target: str, gradients: ActivationGradients) -> Iterator[Session | None]:
    if mode is None:
        yield None
        return
    session = Session(RuntimeConfig(mode, target, activation_gradients=gradients))
    session.start()
    try:
        yield session
    finally:
        session.stop()


def step(case: Case, model: nn.Sequential, optimizer: Any, device: Any, checkpointed: bool) -> None:
    x = torch.randn(case.shape, generator=torch.Generator().manual_seed(1)).to(device)
    optimizer.zero_grad()
    out = checkpoint_sequential(model, case.parts, x, use_reentrant=False) if checkpointed else model(x)
    del x
    nn.functional.cross_entropy(out, torch.zeros(len(out), dtype=torch.long, device=device)).backward()
    optimizer.step()


def peak_bytes(
    case: Case, device: Any, mode: Mode | None, target: str, checkpointed: bool = False, gradients: ActivationGradients = "Exact"
) -> tuple[int, Figures | None]:
    """The peak of the last of STEPS steps, and the runtime's own figures of that step."""
    torch.manual_seed(0)
    model = case.model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with compressed(mode, target, gradients) as session:
        for _ in range(STEPS - 1):
            step(case, model, optimizer, device, checkpointed)
        if session is not None:
            figures = session.figures
            figures.plain_bytes = figures.saved_bytes = figures.held_bytes = 0
            figures.layers.clear()
            figures.raw.clear()
        peak = peak_of(lambda: step(case, model, optimizer, device, checkpointed), device)
        return peak, session.figures if session is not None else None


def peak_of(action: Callable[[], None], device: Any) -> int:
    """The most bytes live at a time above those before: on CPUs the largest rise of the running sum of allocations less releases.

    The profiler reports releases of what was allocated before it began, such as the last step's gradients, only now and then; a
    rise does not depend on that.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = int(torch.cuda.memory_allocated(device))
        action()
        return int(torch.cuda.max_memory_allocated(device)) - before
    with profile(profile_memory=True) as recorded:
        action()
    live = lowest = highest = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += int(event.nbytes())
            lowest = min(lowest, live)
            highest = max(highest, live - lowest)
    return highest


def holders(figures: Figures) -> list[tuple[str, int, int]]:
    """(who, bytes of plain autograd, bytes kept) of one step: by kind of copy, and what stays as it is."""
    found: dict[str, list[int]] = {}
    for name, row in figures.layers.items():
        kind = name[name.index("[") :] if name.endswith("]") else "error-bounded"
        total = found.setdefault(kind, [0, 0])
        total[0] += row.plain
        total[1] += row.saved
    packed = [sum(column) for column in zip(*found.values(), strict=True)] or [0, 0]
    found["as it is"] = [figures.plain_bytes - packed[0], figures.saved_bytes - packed[1]]
    return [(kind, plain, kept) for kind, (plain, kept) in found.items()] + [
        ("somebody else too", figures.held_bytes, figures.held_bytes)
    ]


def show(name: str, case: Case, device: Any, target: str) -> None:
    plain, _ = peak_bytes(case, device, None, target)
    print(f"\n{name}, float32, input {list(case.shape)}: peak of one step")
    print(f"  {'plain':32s} {plain / 1e6:8.2f} MB   1.00")
    rows = {"checkpointing": peak_bytes(case, device, None, target, checkpointed=True)}
    rows["lossless"] = peak_bytes(case, device, "Lossless", target)
    rows[f"error-bounded, target {target}"] = peak_bytes(case, device, "ErrorBounded", target)
    if case.nonlinear:
        label = f"nonlinear too, target {target}"
        rows[label] = peak_bytes(case, device, "ErrorBounded", target, gradients="Bounded")
    for label, (peak, _) in rows.items():
        print(f"  {label:32s} {peak / 1e6:8.2f} MB   {plain / peak:.2f} times smaller")
    for label, (_, figures) in rows.items():
        if figures is not None:
            ratio = figures.plain_bytes / max(1, figures.saved_bytes)
            print(f"  saved bytes, {label}: {figures.plain_bytes / 1e6:.2f} -> {figures.saved_bytes / 1e6:.2f} MB ({ratio:.2f}x)")
            for kind, before, after in holders(figures):
                print(f"    {kind:30s} {before / 1e6:8.2f} -> {after / 1e6:8.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--target", default="0.01")
    parser.add_argument("--cases", choices=CASES, nargs="+", default=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(arguments.device)
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()}, one thread"
    print(f"{machine}, torch {torch.__version__}; the same step each time, so the figures have no spread")
    for name in arguments.cases:
        show(name, CASES[name], device, arguments.target)


if __name__ == "__main__":
    main()
