"""How much memory a training takes of its device and how much there is, read while it runs: what a batch is suggested from.

On GPUs the caching allocator's own counts, reserved bytes among them; on CPUs resident memory and the limit of the container.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from kompakt_runtime.batch import Taken, largest_batch
from kompakt_runtime.figures import Figures

Tensor = Any

# The first steps have bounds of their own and are measured; an optimizer's state is complete only after the first.
STEPS: Final = 3
LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
STATUS: Final = "/proc/self/status"


class Headroom:
    """Watches forward passes and optimizer steps of one process, and puts batch and suggestion into its figures.

    The batch is the first dimension of the first tensor given to the outermost module, the largest seen; where that is given
    all by name, of the first one given to a module inside.
    """

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._device: Any = None
        self._held = 0
        self._unseen = False

    def entered(self, module: Any, args: tuple[Any, ...]) -> None:
        """A forward pass of the outermost module begins."""
        if self._device is None:
            self._device = next((weight.device for weight in module.parameters()), torch.device("cpu"))
            inputs = {x.untyped_storage()._cdata: _bytes(x) for x in _samples(args) if x.device == self._device}
            self._held = held(self._device) - sum(inputs.values())  # these grow with the batch
        self._unseen = True
        self.inside(args)

    def inside(self, args: tuple[Any, ...]) -> None:
        """A module is called while the outermost one runs, or that one itself."""
        sample = next(_samples(args), None) if self._unseen else None
        if sample is not None:
            self._unseen = False
            self._figures.batch = max(self._figures.batch, len(sample))

    def stepped(self, optimizer: Any) -> None:
        """An optimizer step is over; from the third on there is a suggestion."""
        if self._figures.steps < STEPS or self._device is None or not self._figures.batch:
            return
        fixed = self._held + sum(map(_bytes, _state(optimizer, self._device)))
        taken = Taken(self._figures.batch, peak(self._device), fixed)
        self._figures.suggested_batch = largest_batch([taken], limit(self._device, os.environ)) if taken.peak > fixed else 0


def _samples(args: tuple[Any, ...]) -> Iterator[Tensor]:
    yield from (x for x in args if isinstance(x, torch.Tensor) and x.dim())


def _state(optimizer: Any, device: Any) -> Iterator[Tensor]:
    """What the optimizer made at its first step, after the first forward pass began."""
    for state in optimizer.state.values():
        yield from (t for t in state.values() if isinstance(t, torch.Tensor) and t.device == device)


def _bytes(t: Tensor) -> int:
    return int(t.untyped_storage().nbytes()) if t.layout == torch.strided else 0


def held(device: Any) -> int:
    """Bytes in use now."""
    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else _status("VmRSS")


def peak(device: Any) -> int:
    """The most bytes this process took so far; on a GPU the most that were reserved, which its allocator does not give back."""
    return int(torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else _status("VmHWM")


def limit(device: Any, environ: Mapping[str, str]) -> int:
    """Bytes this process may take: what is free and what it has on a GPU; its share of the container's memory on a CPU."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + int(torch.cuda.memory_reserved(device))
    ranks = environ.get("LOCAL_WORLD_SIZE", "1")
    return container_limit(LIMITS) // (int(ranks) if ranks.isdigit() and int(ranks) else 1)


def container_limit(paths: tuple[str, ...]) -> int:
    """The smallest limit that one of these files of control groups names; the machine's memory without one."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in paths:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        found += [int(text)] if text.isdigit() else []
    return min(found)


def _status(field: str) -> int:
    """A field of the kernel's word on this process, which gives kB. (The peak of getrusage may be that of the parent.)"""
    with open(STATUS) as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
