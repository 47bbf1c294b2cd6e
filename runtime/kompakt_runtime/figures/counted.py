"""What is counted while training runs. Sums over steps; written by `export`."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kompakt_runtime.figures.holding import Holding
from kompakt_runtime.figures.kept import KeptModules
from kompakt_runtime.uses.tried import Tried
from kompakt_runtime.uses.unknown import UnknownReaders

WITHIN_BUDGET = "WithinBudget"  # why a layer stays as it is by the plan of a budget
COMPILED = "Compiled"  # a module call or a tensor of torch.compile's code, which is passed through
SWITCHED_OFF = "SwitchedOff"  # a forward pass that ran as without us, because of the file that asks for it


@dataclass
class Layer:
    """plain, saved: bytes summed over backward passes; bound: the widest error bound so far; error: the largest seen;
    sigma: standard deviation of the weight gradient's error as last measured, as a multiple of its target; first: what the
    model gives for it in the steps before the layer was measured.
    """

    plain: int = 0
    saved: int = 0
    outliers: int = 0
    bound: float | None = None
    error: float | None = None
    sigma: float | None = None
    first: float | None = None


@dataclass
class Away:
    """What waited in host memory for its backward pass, summed over steps: storages and bytes; late: storages that had to be
    fetched when they were wanted, also those of a second backward pass; reasons: why others stayed on the device, storages of
    each step.
    """

    tensors: int = 0
    bytes: int = 0
    late: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, reason: str) -> None:
        with self.lock:
            self.reasons[reason] += 1

    def left(self, nbytes: int) -> None:
        with self.lock:
            self.tensors += 1
            self.bytes += nbytes

    def said(self) -> dict[str, Any]:
        """{} where nothing was asked for."""
        with self.lock:
            counts = {"tensors": self.tensors, "bytes": self.bytes, "late": self.late, "reasons": dict(self.reasons)}
        return counts if any(counts.values()) else {}


def _no_steps() -> tuple[int, int]:
    return 0, 0


@dataclass
class Figures:
    """plain_bytes: unique storages that a backward pass asked for and that plain autograd would have kept for it alone
    (no parameters; no second view; what passes through counts too; not what somebody else still held when the compressed copy was
    read);
    saved_bytes: what was kept instead; held_bytes: compressed although somebody else held the original as well.
    """

    plain_bytes: int = 0
    saved_bytes: int = 0
    held_bytes: int = 0
    forwards: int = 0
    steps: int = 0
    compressed: int = 0
    checked: int = 0
    violations: int = 0
    batch: int = 0  # samples of the largest forward pass, where a larger batch is looked for
    suggested_batch: int = 0  # how many would fit; 0: not known
    batch_memory: tuple[int, str] = (0, "")  # the limit in bytes that this rests on, and whose it is
    measured: bool = False  # the process ends because of that, not because it has trained
    failure: str = ""  # why compression ended before the training did
    switched_off: bool = False  # now, by its file
    encoder: str = ""  # which one packed, and why not the GPU's kernels where these do not work
    overhead: Callable[[], Mapping[str, str]] = dict  # as Overhead.said
    overhead_steps: Callable[[], tuple[int, int]] = _no_steps  # as Overhead.steps
    compared: Callable[[], Mapping[str, Any]] = dict  # as GradientErrors.said
    raw: Counter[str] = field(default_factory=Counter)
    raw_bytes: Counter[str] = field(default_factory=Counter)  # of those, what a backward pass asked for
    kept: KeptModules = field(default_factory=KeptModules)
    overrides_matched: set[str] = field(default_factory=set)  # patterns of overrides that some module's name or class matches
    layers: dict[str, Layer] = field(default_factory=dict)
    away: Away = field(default_factory=Away)
    unknown: UnknownReaders = field(default_factory=UnknownReaders)
    budget: Callable[[], Mapping[str, Any]] = dict  # as BudgetControl.said
    tried: list[Tried] = field(default_factory=list)
    holding: Holding = field(default_factory=Holding)
    # Backward passes run on threads of their own on GPUs.
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def forget(self) -> None:
        """Counts of bytes, copies and reasons start anew; steps and forward passes go on."""
        with self.lock:
            self.plain_bytes = self.saved_bytes = self.held_bytes = self.compressed = self.checked = self.violations = 0
            self.raw.clear()
            self.raw_bytes.clear()
            self.kept = KeptModules()
            self.away, self.unknown = Away(), UnknownReaders()
            self.holding.forget()
            self.layers.clear()

    def begin(self) -> None:
        """In a process that was just forked: its parent's counts are not its own."""
        self.lock = threading.Lock()  # whoever held it is not here
        self.holding.begin()
        self.forget()
        self.tried.clear()
        self.forwards = self.steps = self.batch = self.suggested_batch = 0

    def count_raw(self, reason: str) -> None:
        """One storage (or one failure) that stayed as plain autograd has it."""
        with self.lock:
            self.raw[reason] += 1

    def count_passed(self, reason: str, nbytes: int, module: str = "") -> None:
        """One storage that a backward pass asked for the first time and that the ledger does not know."""
        with self.lock:
            self.plain_bytes += nbytes
            self.saved_bytes += nbytes
            self.raw_bytes[reason] += nbytes
            self.kept.add(reason, module, nbytes)

    def count_kept(self, reason: str, nbytes: int, module: str = "", held: bool = False) -> None:
        """Of the storages that are counted already, one that was kept as it is. held: by somebody else as well, so that its bytes
        are in no sum.
        """
        with self.lock:
            self.raw[reason] += 1
            self.raw_bytes[reason] += 0 if held else nbytes
            self.kept.add(reason, module, nbytes)

    def count_storage(self, plain: int, saved: int, held: bool) -> None:
        """One storage that a backward pass asked for the first time."""
        with self.lock:
            if held:
                self.held_bytes += plain
            else:
                self.plain_bytes += plain
                self.saved_bytes += saved

    def layer(self, name: str) -> Layer:
        with self.lock:
            return self.layers.setdefault(name, Layer())
