"""How much memory a training takes of its device and how much there is, read while it runs: what a batch is suggested from.

On GPUs the caching allocator's own counts, reserved bytes among them; on CPUs resident memory and the limit of the container.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from kompakt_runtime.compat.tensors import device_of
from kompakt_runtime.cost.batch import Taken, largest_batch
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.uses.policy import Use

Tensor = Any

# The first steps have bounds of their own and are measured; an optimizer's state is complete only after the first.
STEPS: Final = 3
WATCHED: Final = 16  # steps in which memory is read at each saved tensor as well, not only between passes
COUNTED: Final = 1000  # weights of less than the 1000th part of all bytes are left out: their gradients count as growing
LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
STATUS: Final = "/proc/self/status"
BUDGET: Final = "the memory budget, less what of it is left over"


class Headroom:
    """Watches forward passes, backward passes and optimizer steps of one process; puts batch and suggestion into its figures.

    Whenever the peak has risen it is noted together with what was there then that any batch takes: what was held before the
    first forward pass, the optimizer's state, and gradients. Which of these moments is the highest at a larger batch is another
    matter, so each has a word in the suggestion. So have, from the second step on, moments that stayed below the peak known.

    The batch is the first dimension of the first tensor given to the outermost module, the largest seen; where that is given
    all by name, of the first one given to a module inside.
    """

    def __init__(self, figures: Figures, budget: Callable[[], int | None] = lambda: None) -> None:
        """budget: bytes that a step may take where it was given a budget."""
        self._figures, self._budget = figures, budget
        self._device: Any = None
        self._held = 0
        self._state = 0
        self._loaded = 0  # bytes of an optimizer's state that were held before, as of a training that goes on
        self._weights: list[Any] = []
        self._linear: list[Any] = []  # those of linear layers
        self._reading: Any = None  # type of what was read for the gradient of a linear operation's weight, which runs now
        self._made = 0  # bytes of gradients of linear layers' weights of that type, as of the last look
        self._unseen = False
        self._fixed = 0  # as of the last look
        self._moments: dict[int, int] = {}  # fixed bytes -> the highest peak beside them
        self._highest = 0
        self._growing = 0  # while an optimizer steps: what is held above that
        self._first: dict[int, int] = {}  # fixed bytes in the first step -> the most that may have been held above
        self._most = 0  # of all of that step, gradients in the making counted as held above
        self._later = False  # it is over
        self._kept = False  # a forward pass began with gradients of an earlier one, beside which new ones are made

    def entered(self, module: Any, args: tuple[Any, ...]) -> None:
        """A forward pass of the outermost module begins."""
        if self._device is None:
            self._begin(module, args)
        self._reading = None
        self.look()
        self._kept = self._fixed > self._held + self._state
        self._unseen = True
        self.inside(args)

    def _begin(self, module: Any, args: tuple[Any, ...]) -> None:
        self._device = device_of(module)
        inputs = {x.untyped_storage()._cdata: _bytes(x) for x in _samples(args) if x.device == self._device}
        self._held = held(self._device) - sum(inputs.values())  # these grow with the batch
        self._fixed = self._held
        # Gradients in buckets of DistributedDataParallel were held before already.
        if not getattr(module, "gradient_as_bucket_view", False):
            self._weights, self._linear = _watched(module)

    def inside(self, args: tuple[Any, ...]) -> None:
        """A module is called while the outermost one runs, or that one itself."""
        sample = next(_samples(args), None) if self._unseen else None
        if sample is not None:
            self._unseen = False
            self._figures.batch = max(self._figures.batch, len(sample))

    def unpacking(self) -> None:
        """A backward pass is about to read a saved tensor."""
        if self._figures.steps < WATCHED and self._device is not None:
            self.look()

    def unpacked(self, use: Use, dtype: Any) -> None:
        """It has it, and the operation that saved it follows."""
        if self._figures.steps < WATCHED and self._device is not None:
            self.look()
            self._reading = dtype if use is Use.WEIGHT_GRADIENT else None
            self._made = self._gradients()

    def look(self) -> None:
        """Notes the peak if it has risen since the last look, else what may be hidden below it; each with the least that was
        fixed since then.
        """
        before, made = self._fixed, self._made
        self._count()
        # A linear operation has its weight's gradient from its peak on, and before that was made it held less by as much: where
        # the mark has risen since its input was read, this is there. Another type's (autocast) is made after the operation.
        last = max(0, self._made - made) if self._reading is not None else 0
        now = peak(self._device)
        self._see(now, min(before + last, self._fixed))
        if not self._later:
            self._most = max(self._most, now - min(before, self._fixed))

    def _see(self, now: int, fixed: int) -> None:
        """now: no moment since the last look was above that."""
        if now > self._highest:
            self._highest = now
            self._at_least(now, fixed)
        elif self._later:
            self._at_least(min(now, fixed + self._above(fixed)), fixed)
        if not self._later:
            self._first[fixed] = max(now - fixed, self._first.get(fixed, 0))

    def _count(self) -> None:
        """What is fixed now."""
        self._made = self._gradients()
        self._fixed = self._held + self._state + sum(map(_gradient_bytes, self._weights))

    def _gradients(self) -> int:
        return sum(_gradient_bytes(weight) for weight in self._linear if weight.dtype == self._reading and _made_at_once(weight))

    def _above(self, fixed: int) -> int:
        """What a later pass is taken to need beside `fixed`: no more than the first did where as many gradients were there."""
        return self._most if self._kept else self._first.get(fixed - self._state, self._most)

    def _at_least(self, now: int, fixed: int) -> None:
        self._moments[fixed] = max(now, self._moments.get(fixed, 0))

    def stepping(self, optimizer: Any) -> None:
        """An optimizer step begins: what it takes besides does not grow with the batch, but what is held meanwhile may."""
        if self._device is not None:
            if not self._later:
                self._loaded = sum(map(_bytes, _state(optimizer, self._device)))
            self.look()
            self._growing = max(0, held(self._device) - self._fixed)

    def stepped(self, optimizer: Any) -> None:
        """An optimizer step is over; from the third on there is a suggestion."""
        if self._device is None or not self._figures.batch:
            return
        self._later = True
        self._highest = max(self._highest, peak(self._device))
        self._at_least(self._highest, self._highest - self._growing)
        self._state = max(0, sum(map(_bytes, _state(optimizer, self._device))) - self._loaded)
        self._count()
        if self._figures.steps >= STEPS:
            self._figures.batch_memory = self._room()
            self._figures.suggested_batch = self._suggested(self._figures.batch_memory[0])

    def _room(self) -> tuple[int, str]:
        """Bytes that a step may take, and whose limit that is."""
        there, budget = limit(self._device, os.environ), self._budget()
        if budget is not None and budget < there:
            return budget, BUDGET
        return there, limit_words(self._device, os.environ)

    def _suggested(self, there: int) -> int:
        moments = [Taken(self._figures.batch, peak, fixed) for fixed, peak in self._moments.items() if peak > fixed]
        return min((largest_batch([moment], there) for moment in moments), default=0)


def _watched(module: Any) -> tuple[list[Any], list[Any]]:
    """Weights large enough to be looked at, and those of them that linear layers have."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    least = sum(map(_bytes, weights)) / COUNTED
    linear = {id(layer._parameters.get("weight")) for layer in module.modules() if type(layer).forward is torch.nn.Linear.forward}
    large = [weight for weight in weights if _bytes(weight) >= least]
    return large, [weight for weight in large if id(weight) in linear]


def _samples(args: tuple[Any, ...]) -> Iterator[Tensor]:
    yield from (x for x in args if isinstance(x, torch.Tensor) and x.dim())


def _state(optimizer: Any, device: Any) -> Iterator[Tensor]:
    """What the optimizer keeps of its weights."""
    for state in optimizer.state.values():
        yield from (t for t in state.values() if isinstance(t, torch.Tensor) and t.device == device)


def _made_at_once(weight: Any) -> bool:
    """CPUs without instructions for 16-bit types multiply them into float32 first, and that may be all there is at the peak."""
    return bool(weight.is_cuda or weight.element_size() > 2)


def _gradient_bytes(weight: Any) -> int:
    """0 for a view of something larger, which may have been held before, and for what is sharded."""
    grad = weight.grad
    owned = type(grad) is torch.Tensor and _bytes(grad) == grad.numel() * grad.element_size()
    return _bytes(grad) if owned else 0


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
    return container_limit(LIMITS) // _local_ranks(environ)


def limit_words(device: Any, environ: Mapping[str, str]) -> str:
    """Whose limit that is."""
    if device.type == "cuda":
        return "what is free on the GPU and what this process has there"
    whose = "the container's limit" if container_limit(LIMITS) < _machine() else "all memory of this machine, free or not"
    ranks = _local_ranks(environ)
    return whose if ranks == 1 else f"1/{ranks} of {whose}"


def _local_ranks(environ: Mapping[str, str]) -> int:
    ranks = environ.get("LOCAL_WORLD_SIZE", "1")
    return int(ranks) if ranks.isdigit() and int(ranks) else 1


def _machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def container_limit(paths: tuple[str, ...]) -> int:
    """The smallest limit that one of these files of control groups names; the machine's memory without one."""
    found = [_machine()]
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
