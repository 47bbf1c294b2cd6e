"""The runtime as the zoo uses it. All that the zoo knows of the runtime's insides is here.

Public: `Compression` (a context around forward passes) and its `report()`, whose sums over all steps give one step's by
subtraction. Not public yet, so looked up inside: the most bytes held at a time.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime import __file__ as runtime_file
from kompakt_runtime.bounds import observed
from kompakt_runtime.config import DEFAULT_MIN_TENSOR_BYTES, RuntimeConfig
from kompakt_runtime.export import DENOMINATOR
from kompakt_runtime.library import Compression

__all__ = ["DENOMINATOR", "SETTINGS", "Counted", "Holding", "Runtime", "fingerprint"]

Tensor = Any

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "default": {"mode": "ErrorBounded"},
    "nonlinear": {"mode": "ErrorBounded", "nonlinear": "Bounded"},
    "lossless": {"mode": "Lossless"},
}


@cache
def fingerprint() -> str:
    """Which runtime this is: rows of another one are measured anew."""
    files = sorted(Path(runtime_file).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


@dataclass(frozen=True)
class Counted:
    """What the runtime itself says: bytes of plain autograd that it took charge of, what it kept of them; raw: tensors that
    it left alone, by reason.
    """

    plain: int
    saved: int
    raw: dict[str, int]

    def since(self, before: "Counted") -> "Counted":
        raw = {reason: more for reason, count in self.raw.items() if (more := count - before.raw.get(reason, 0))}
        return Counted(self.plain - before.plain, self.saved - before.saved, raw)


class Runtime:
    """One training's compression; entered around each of its forward passes."""

    def __init__(self, setting: str, target: float) -> None:
        config = RuntimeConfig.of(
            target=target, overrides={}, min_tensor_bytes=DEFAULT_MIN_TENSOR_BYTES, verify=False, **SETTINGS[setting]
        )
        self._compression = Compression(config)
        self.steps = 0  # optimizer steps, as whoever trains counts them

    @property
    def forwards(self) -> Compression:
        """Compresses what forward passes inside save."""
        return self._compression

    @property
    def measuring(self) -> bool:
        """Is the next step one that is measured?"""
        return observed(self.steps)

    def counted(self) -> Counted:
        report = self._compression.report()
        return Counted(report.plain_bytes, report.saved_bytes, dict(report.raw))

    @contextlib.contextmanager
    def watched(self) -> Iterator["Holding"]:
        holding = Holding(self._compression._session.hooks)
        try:
            yield holding
        finally:
            holding.end()

    def close(self) -> None:
        self._compression.close()


class Holding:
    """The most bytes that the runtime held at a time, looked at after each tensor that was packed or unpacked: storages and
    copies kept, originals that wait to be packed, and what it unpacked and somebody still reads.
    """

    def __init__(self, hooks: Any) -> None:
        self._hooks, self._pack, self._unpack = hooks, hooks.pack, hooks.unpack
        self._read: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0
        self.kept: int | None = None  # when the backward pass began
        hooks.pack, hooks.unpack = self._packing, self._unpacking

    def end(self) -> None:
        del self._hooks.pack, self._hooks.unpack  # the class's own again

    def _packing(self, *what: Any) -> Any:
        handle = self._pack(*what)
        self._look()
        return handle

    def _unpacking(self, handle: Any) -> Tensor:
        if self.kept is None:
            self.kept = self._kept()
        t = self._unpack(handle)
        if hasattr(handle, "entry") and handle.entry.alias is None:
            storage = t.untyped_storage()
            reference = StorageWeakRef(storage)
            self._read[reference.cdata] = (reference, int(storage.nbytes()))
            self._look()
        return t

    def _look(self) -> None:
        self._read = {key: pair for key, pair in self._read.items() if not pair[0].expired()}
        self.peak = max(self.peak, self._kept() + sum(nbytes for _, nbytes in self._read.values()))

    def _kept(self) -> int:
        return sum(entry.kept_bytes for entry in list(self._hooks.ledger._entries.values()))
