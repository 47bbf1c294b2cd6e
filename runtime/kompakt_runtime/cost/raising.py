"""What a raised batch asks of a training process: first to measure and end, then never to train a step plainly.

A batch that was raised because activations are compressed does not fit without. The attempt that measures (`Measure`) ends by
itself; the one after it (`Raise`) ends as soon as compression fails, which is what the failure policy Fail means.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from kompakt_runtime.config import EXIT_CONFIG, RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import WITHIN_BUDGET, Figures

# The first three steps have bounds of their own, are measured, and make the optimizer's state; the others are ordinary ones.
STEPS: Final = 8
AFTER: Final = 2  # steps that still run when this rank has written its figures: others may be a step behind
# Reasons that begin so are failures of ours, after which something stayed plain that would have been compressed.
FAILURES: Final = ("HookFailed", "PackFailed", "SettleFailed", "EncodeFailed")


class Raising:
    """Looks at each step of the optimizer that stepped first."""

    def __init__(self, config: RuntimeConfig, figures: Figures, end: Callable[[int], Any] = os._exit) -> None:
        """end: how the process ends once it has measured. Not by an exception: that would run the script's `finally`, which may
        save an untrained model over a trained one.
        """
        self._config, self._figures, self._end = config, figures, end
        self._first: int | None = None
        self._steps = 0
        self._served = 0

    def stepped(self, optimizer: Any) -> None:
        """An optimizer step is over. Raises SystemExit where something of it was not compressed that should have been."""
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) != self._first:
            return
        self._steps += 1
        if (failure := self._failure()) != "":
            self._fail(failure)
        if self._config.batch == "Measure":
            self._measured()

    def _failure(self) -> str:
        with self._figures.lock:
            # What the plan of a budget leaves as it is fits as it is.
            before, self._served = self._served, self._figures.compressed + self._figures.raw[WITHIN_BUDGET]
            failed = [reason for reason in self._figures.raw if reason.startswith(FAILURES)]
        if failed:
            return failed[0]
        return "" if self._served > before else "NothingCompressed"

    def _fail(self, reason: str) -> None:
        self._figures.failure = reason
        print(
            f"kompakt: activations of a step were kept plain ({reason}). A batch that is raised because they are compressed "
            "would not fit, so training ends here.",
            file=sys.stderr,
            flush=True,
        )
        raise SystemExit(EXIT_CONFIG)

    def _measured(self) -> None:
        if self._steps == STEPS:
            _synchronize()
            self._figures.measured = self._tell()
        if self._steps == STEPS + AFTER and self._figures.measured:
            _synchronize()
            print("kompakt: the batch that fits is measured; a new attempt begins with it", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            self._end(0)

    def _tell(self) -> bool:
        """Leaves the figures where the operator reads them; where that cannot be, training goes on with the batch that it has."""
        self._figures.measured = True
        try:
            os.stat(self._config.termination_log)
            export.write_words(self._config, export.report(self._figures))
        except OSError as error:
            print(f"kompakt: the batch is not raised: what was measured cannot be told ({error})", file=sys.stderr)
            return False
        return True


def _synchronize() -> None:
    """What other ranks may still wait for on this rank's device is done before the process ends."""
    torch = sys.modules["torch"]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
