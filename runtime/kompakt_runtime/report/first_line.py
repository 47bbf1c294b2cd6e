"""The first line of a report, which people repeat to each other: how much was held at a time, and what that did to gradients.

No torch here: `kompakt run` shows files of processes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kompakt_runtime.report.gradient_errors import GradientComparison

# Of what torch reserved, the share that no tensor had when most was allocated, from which on something can be done about it.
MUCH_IDLE: Final = 0.1


class LayerFigures(Protocol):
    """What the line needs of a layer's figures."""

    @property
    def name(self) -> str: ...
    @property
    def bound(self) -> float | None: ...
    @property
    def sigma(self) -> float | None: ...
    @property
    def first(self) -> float | None: ...
    @property
    def of_weights(self) -> bool: ...


@dataclass(frozen=True)
class PeakReport:
    """The most bytes that the runtime held for backward passes at a time, and what plain autograd would have held at most; of the
    rank that held most. step: in which that was; tensor, tensor_bytes: what set it; last_: of the last step; reserved: the most
    that torch had taken from the GPU, 0 without one; allocated: the most of it that tensors had at a time.
    """

    held: int
    plain: int
    step: int
    tensor: str
    tensor_bytes: int
    last_held: int
    last_plain: int
    reserved: int
    allocated: int

    @staticmethod
    def of(said: Mapping[str, Any]) -> "PeakReport | None":
        if not said:
            return None
        names = ("bytes", "plainBytes", "step", "tensor", "tensorBytes", "lastBytes", "lastPlainBytes")
        return PeakReport(*(said[name] for name in (*names, "reservedBytes", "allocatedBytes")))

    @property
    def ratio(self) -> float:
        return self.plain / max(1, self.held)

    def words(self) -> str:
        times = f"{self.ratio:.1f} times less" if self.ratio >= 1.05 else "not less"
        return f"activations held at most {megabytes(self.held)} MB instead of {megabytes(self.plain)} MB ({times})"

    def sentences(self) -> list[str]:
        return [
            f"most was held in step {self.step}, set by {self.tensor} ({megabytes(self.tensor_bytes)} MB); "
            f"the last step held at most {megabytes(self.last_held)} MB instead of {megabytes(self.last_plain)} MB",
            *([self._of_the_gpu()] if self.reserved else []),
        ]

    def _of_the_gpu(self) -> str:
        words = (
            f"torch reserved at most {megabytes(self.reserved)} MB of the GPU; tensors had {megabytes(self.allocated)} MB of it"
        )
        idle = 1 - self.allocated / self.reserved
        return (
            f"{words}. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may make the rest smaller" if idle > MUCH_IDLE else words
        )


def first_line(
    peak: PeakReport | None, layers: Iterable[LayerFigures], target: str, comparison: GradientComparison | None
) -> str:
    held = peak.words() if peak is not None else "no activations were held"
    return f"{held}, {gradient_words(tuple(layers), target, comparison)}"


def gradient_words(layers: tuple[LayerFigures, ...], target: str, comparison: GradientComparison | None) -> str:
    """What is known of the gradient's error, the better first: compared with plain training, else measured by layer."""
    if comparison is not None and comparison.overall is not None:
        steps = f"{comparison.steps} steps against plain training"
        return f"gradient off by {comparison.overall.worst:.2%} at most (||g' - g|| / ||g||, {steps})"
    if not any(layer.bound is not None for layer in layers):
        return "nothing of it lossy, so gradients are those of plain training"
    weighed = [layer for layer in layers if layer.of_weights and layer.bound is not None]
    sigmas = [layer.sigma for layer in weighed if layer.sigma is not None]
    if not sigmas:
        return f"the gradient's error not measured yet{_before(weighed, 0.0, target)}"
    measured = f"{len(sigmas)} of {len(weighed)} layers, by their own inputs, standard deviation"
    share = f"weight gradients off by {max(sigmas) * float(target):.2%} of a step at most once measured ({measured})"
    return share + _before(weighed, max(sigmas), target)


def _before(layers: Sequence[LayerFigures], measured: float, target: str) -> str:
    """Before a layer was measured there is an estimate, which is told where it is above what was measured of any."""
    worst, name = max(((layer.first, layer.name) for layer in layers if layer.first is not None), default=(0.0, ""))
    return f"; in the first step, as estimated, by {_percent(worst * float(target))} ({name})" if worst > measured else ""


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.2%}"


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}" if count >= 1e5 else f"{count / 1e6:.3f}"
