"""Figures are left behind while training runs, so that a process that is killed has left them too.

Nobody can write at a SIGKILL, nor does Python run its exit functions at a SIGTERM. So the process's file and the pod's
summary are written after the first optimizer step and then every few seconds; what is lost is what came after.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures

SECONDS: Final = 10.0


class CheckpointFigures:
    """Called after each optimizer step; `pace` gives what Pace.said gives."""

    def __init__(
        self,
        config: RuntimeConfig,
        figures: Figures,
        pace: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._figures, self._pace, self._clock = config, figures, pace, clock
        self._next = -float("inf")

    def stepped(self) -> None:
        """Writes if it is time. Never raises: a full or vanished folder is no reason to disturb training, and is counted."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + SECONDS
        try:
            export.write_words(self._config, export.report(self._figures, pace=self._pace()))
        except Exception:
            self._figures.count_raw("StateDirUnwritable")
