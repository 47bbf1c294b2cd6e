"""The runtime as the zoo uses it: `Compression`, a context around forward passes, and its `report()`, whose sums over all steps
give one step's by subtraction.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from kompakt_runtime import __file__ as runtime_file
from kompakt_runtime.bounds.layer import observed
from kompakt_runtime.config import DEFAULT_MIN_TENSOR_BYTES, RuntimeConfig
from kompakt_runtime.figures.export import DENOMINATOR
from kompakt_runtime.library import Compression

__all__ = ["DENOMINATOR", "SETTINGS", "Counted", "Runtime", "fingerprint"]

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "default": {"mode": "ErrorBounded"},
    "exact": {"mode": "ErrorBounded", "activation_gradients": "Exact"},
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

    @property
    def held(self) -> int:
        """Bytes that the runtime holds now."""
        return self._compression.held_bytes()

    @property
    def most(self) -> int:
        """The most that it held at a time since the last optimizer step, without its working memory: that is 1 to 2 MB, whatever
        the model.
        """
        return self._compression.step_peak().stored

    def close(self) -> None:
        self._compression.close()
