"""The codecs that `benchmarks.accuracy` compares, each as a context in which everything trains with it."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

from kompakt_runtime.bounds import observe
from kompakt_runtime.config import DEFAULT_MIN_TENSOR_BYTES, ActivationGradients, Mode, RuntimeConfig
from kompakt_runtime.saved import account, states
from kompakt_runtime.saved.entry import SavedStorage, whole_storage
from kompakt_runtime.saved.lossless import Mask, sign_mask
from kompakt_runtime.session import Session

Tensor = Any
GROUP = 256
NUDGE = 1.000001


@dataclass(frozen=True)
class Groups:
    """Stands in for a packed tensor: codes of groups of GROUP values, with least value and step in float32 for each group."""

    codes: Tensor
    least: Tensor
    step: Tensor
    signs: Mask | None  # which values are above zero, where a ReLU reads the same tensor
    elements: int
    bits: int

    @property
    def nbytes(self) -> int:
        """What packing the codes would take: they lie in a byte each here, because only accuracy is measured."""
        return math.ceil(self.elements * self.bits / 8) + 8 * int(self.least.numel()) + (self.signs.nbytes if self.signs else 0)

    @staticmethod
    def of(flat: Tensor, bits: int, relu: bool, generator: torch.Generator) -> "Groups":
        groups = F.pad(flat, (0, -flat.numel() % GROUP)).view(-1, GROUP)
        least = groups.amin(1, keepdim=True)
        step = ((groups.amax(1, keepdim=True) - least) / (2**bits - 1)).clamp(min=1e-30)
        noise = torch.rand(groups.shape, generator=generator)
        codes = ((groups - least) / step + noise).floor().clamp(0, 2**bits - 1).to(torch.uint8)
        return Groups(codes, least, step, sign_mask(flat) if relu else None, flat.numel(), bits)

    def decode(self) -> Tensor:
        values = (self.codes * self.step + self.least).view(-1)[: self.elements]
        return values if self.signs is None else values.clamp(min=1e-30) * self.signs.decode()


@contextmanager
def compressed(
    mode: Mode, target: str = "0.01", gradients: ActivationGradients = "Exact", least: int = 16384
) -> Iterator[Session]:
    """least: bytes of the smallest tensor that is packed; small networks have few as large as the runtime's own default."""
    session = Session(RuntimeConfig(mode, target, min_tensor_bytes=least, activation_gradients=gradients))
    session.start()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def far_too_large() -> Iterator[Session]:
    """The test must be able to fail."""
    with (
        mock.patch.object(observe, "error_bound", lambda average, seen: 300 * seen.magnitude),
        compressed("ErrorBounded") as session,
    ):
        yield session


@contextmanager
def disturbed(disturb: Callable[[Tensor, dict[str, Tensor]], None]) -> Iterator[Session]:
    """Plain training; before each step something happens to the gradient of each weight, whose state is handed over too."""

    def before(optimizer: torch.optim.Optimizer, *call: Any) -> None:
        for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
            disturb(weight, optimizer.state.get(weight, {}))

    hook = register_optimizer_step_pre_hook(before)
    try:
        yield Session(RuntimeConfig("None"))  # never started: it counts nothing
    finally:
        hook.remove()


def nudged() -> AbstractContextManager[Session]:
    """Once times 1.000001: what two trainings differ by that differ in nothing that matters."""
    nudged = set[Tensor]()

    def nudge(weight: Tensor, state: dict[str, Tensor]) -> None:
        if weight not in nudged:
            weight.grad.mul_(NUDGE)
        nudged.add(weight)

    return disturbed(nudge)


def noisy(share: float) -> AbstractContextManager[Session]:
    """Each time with as much noise as an error-bounded copy may cause, but independent of all: what any such error does."""
    generator = torch.Generator().manual_seed(0)

    def blur(weight: Tensor, state: dict[str, Tensor]) -> None:
        momentum = state.get("momentum_buffer", state.get("exp_avg"))
        if weight.dim() > 1:
            scale = (weight.grad if momentum is None else momentum).abs().mean()
            weight.grad += share * scale * torch.randn(weight.shape, generator=generator)

    return disturbed(blur)


@contextmanager
def fixed_width(bits: int) -> Iterator[Session]:
    generator = torch.Generator().manual_seed(bits)

    def compress(entry: SavedStorage, t: Tensor, bound: float, *_: Any) -> bool:
        source = entry.alias if entry.alias is not None else whole_storage(t)
        entry.become(states.MaskState(Groups.of(source, bits, entry.demand.signs > 0, generator)))  # type: ignore[arg-type]
        return True

    kind = account.kind
    # Reads of such a copy are no promise, so nothing is to be compared with one.
    with (
        mock.patch.object(SavedStorage, "compress", compress),
        mock.patch.object(account, "kind", lambda entry: "" if isinstance(entry.copy, Groups) else kind(entry)),
        compressed("ErrorBounded") as session,
    ):
        yield session


CODECS: dict[str, Callable[[], AbstractContextManager[Session]]] = {
    "lossless": lambda: compressed("Lossless"),
    "error-bounded 0.01": lambda: compressed("ErrorBounded", "0.01"),
    "error-bounded 0.03": lambda: compressed("ErrorBounded", "0.03"),
    "error-bounded 0.1": lambda: compressed("ErrorBounded", "0.1"),
    "nonlinear too 0.01": lambda: compressed("ErrorBounded", "0.01", "Bounded"),
    "nonlinear too 0.03": lambda: compressed("ErrorBounded", "0.03", "Bounded"),
    "nonlinear too 0.1": lambda: compressed("ErrorBounded", "0.1", "Bounded"),
    "fixed 4 bit": lambda: fixed_width(4),
    "fixed 2 bit": lambda: fixed_width(2),
    "far too large": far_too_large,
    "nudged": nudged,
    "noise 0.01": lambda: noisy(0.01),
    "as it comes, exact": lambda: compressed("ErrorBounded", least=DEFAULT_MIN_TENSOR_BYTES),
    "as it comes": lambda: compressed("ErrorBounded", gradients="Bounded", least=DEFAULT_MIN_TENSOR_BYTES),
}
# With nothing set but the mode: for models of others, which are large enough for it.
AS_IT_COMES = ("as it comes", "as it comes, exact")
# The slower tasks are tried with these.
TELLING = ["lossless", "error-bounded 0.01", "error-bounded 0.1", "fixed 4 bit", "fixed 2 bit"]


def usual(task: str) -> list[str]:
    """The codecs that a task is tried with by default."""
    ours = [codec for codec in CODECS if codec not in AS_IT_COMES]
    if task == "words":
        # Its adaptive codes come nearest to the size of 2 bits at 0.03.
        return [*TELLING[:2], "error-bounded 0.03", *TELLING[2:]]
    if task == "digits":
        return [codec for codec in ours if not codec.startswith("nonlinear")]  # it has no such inputs
    if task == "text":
        return [*TELLING[:3], "nonlinear too 0.01", "nonlinear too 0.03", *TELLING[3:]]
    return ours if task == "digits-norm" else TELLING
