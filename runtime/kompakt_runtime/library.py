"""Compression switched on by a program itself, around forward passes, instead of by the start-up hook."""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from kompakt_runtime.config import DEFAULT_MIN_TENSOR_BYTES, RuntimeConfig
from kompakt_runtime.figures.holding import Holding, StepPeak
from kompakt_runtime.report.text import Report
from kompakt_runtime.scope.exclusions import exclude, uncompressed
from kompakt_runtime.start import load_session

__all__ = ["Compression", "compression", "exclude", "uncompressed"]


class Compression:
    """A context around forward passes; backward passes and optimizer steps may follow outside.

    It may be entered again for each step, and by several threads: what was measured goes on from step to step.
    """

    def __init__(self, config: RuntimeConfig) -> None:
        """Raises kompakt_runtime.start.Unsupported where this torch is not fit for it."""
        self._session = load_session()(config)
        self._depth = 0
        self._lock = threading.Lock()

    def __enter__(self) -> "Compression":
        with self._lock:
            if not self._depth and self._session.config.mode != "None":
                self._session.start()
            self._depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._session.pause()

    def report(self) -> Report:
        """What happened so far, as an object that does not change any more."""
        return Report.of(self._session.config, self._session.figures)

    def held_bytes(self) -> int:
        """What is held now for backward passes to come, unpacked copies in it."""
        holding: Holding = self._session.figures.holding
        return holding.held

    def step_peak(self) -> StepPeak:
        """The most that was held at a time since the last optimizer step, and what plain autograd would have held."""
        holding: Holding = self._session.figures.holding
        return holding.now

    def state_dict(self) -> dict[str, Any]:
        """The error bounds so far, as lists, dictionaries, words and numbers: for a checkpoint beside those of model and
        optimizer. Layers that were not measured yet are missing, and those that share name and shape with another.
        """
        state: dict[str, Any] = self._session.remembered.state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with bounds that `state_dict` gave, before the first forward pass or later. They are checked in the next step,
        and a layer whose name and weight's shape are not in there begins as ever. Raises ValueError that names what is wrong.
        """
        self._session.remembered.load(state)

    def close(self) -> None:
        """Lets go of hooks of modules, which do nothing outside of the context, and of optimizer steps. Forward passes that ran
        inside may still be followed by their backward passes.
        """
        self._session.stop()


_by_settings: Final[dict[RuntimeConfig, Compression]] = {}


def compression(
    *,
    mode: str = "ErrorBounded",
    target: float | str = 0.01,
    overrides: Mapping[str, str] | None = None,
    min_tensor_bytes: int = DEFAULT_MIN_TENSOR_BYTES,
    verify: bool = False,
    replay: bool = False,
    activation_gradients: str | None = None,
    offload: str = "Never",
    nonlinear: str | None = None,
    memory_budget: str | int | None = None,
) -> Compression:
    """`with compression(target=0.01): loss = criterion(model(x), y)`: activations saved in there are compressed.

    mode: "Lossless" (gradients bit-identical), "ErrorBounded" or "None".
    target: allowed standard deviation of a weight gradient's error as a share of what the optimizer steps by; at most 0.1.
    overrides: name patterns of modules (`head.*`) or classes (`class:Conv2d`) to modes; the first that matches wins.
    min_tensor_bytes: smaller tensors stay as they are. verify: keep originals too, and compare each copy that is read.
    replay: masks of nn.Dropout on CPUs are drawn again in the backward pass, where that was proved to give the same bits.
    activation_gradients: "Bounded" (mode ErrorBounded's default) packs what norms, GELU, SiLU, products and attention read within
    bounds of their own as well; with "Exact" gradients of activations are those of plain training bit for bit.
    offload: "Auto" lets what is kept wait in the host's pinned memory where copies hide behind what the GPU computes.
    memory_budget: bytes, an amount as "20Gi" or a share of the device's memory as "80%": no more is packed than keeps a step
    within it.
    nonlinear: deprecated, as activation_gradients: "Keep" is Exact.

    Equal settings give the same object in all of the process, so the call may stand inside the loop. Raises ConfigError (a
    ValueError) that names the argument, Unsupported where this torch is not fit for it.
    """
    config = RuntimeConfig.of(
        mode, target, overrides or {}, min_tensor_bytes, verify, replay, activation_gradients, offload, nonlinear, memory_budget
    )
    if config not in _by_settings:
        _by_settings[config] = Compression(config)
    return _by_settings[config]
